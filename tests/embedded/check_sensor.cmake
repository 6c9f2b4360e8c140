# Fails if libtorch, exceptions or RTTI of the library's own are in a program that shall do without.
#
#   cmake -D NM=nm -D PROGRAM=... -P check_sensor.cmake
#   cmake ... -D EXPECTED=ON -P check_sensor.cmake     fails if one of them is not found
cmake_minimum_required(VERSION 3.24)

execute_process(COMMAND "${NM}" "${PROGRAM}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES "${PROGRAM}"
  RESOLVED_DEPENDENCIES_VAR libraries UNRESOLVED_DEPENDENCIES_VAR unresolved)
if(NOT symbols MATCHES "8distgrad12TcpTransport")
  message(FATAL_ERROR "'${PROGRAM}' has no symbols")
endif()

# Thrown here; classes of the library with type information; libtorch.
foreach(unwanted "U __cxa_throw" "_ZTIN8distgrad" "libtorch" "libc10")
  string(FIND "${symbols};${libraries};${unresolved}" "${unwanted}" position)
  if(position EQUAL -1 AND EXPECTED)
    message(FATAL_ERROR "'${PROGRAM}' should contain ${unwanted}")
  elseif(NOT position EQUAL -1 AND NOT EXPECTED)
    message(FATAL_ERROR "'${PROGRAM}' contains ${unwanted}")
  endif()
endforeach()
