# Installs, moves the prefix, and builds a stranger's project against what was moved.
cmake_minimum_required(VERSION 3.24)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${SCRATCH}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/first")
file(RENAME "${SCRATCH}/first" "${SCRATCH}/moved")

# Nothing of the package may know where it was built, or where libtorch was.
set(private "${SOURCE}" "${BUILD}" "${SCRATCH}/first")
string(REPLACE ":" ";" TORCH_FOLDERS "${TORCH_FOLDERS}")
list(REMOVE_ITEM TORCH_FOLDERS "/usr/include")  # too common a word
file(GLOB package "${SCRATCH}/moved/share/cmake/distgrad/*")
if(NOT package)
  message(FATAL_ERROR "no package was installed below ${SCRATCH}/moved")
endif()
foreach(file IN LISTS package)
  file(READ "${file}" text)
  foreach(path IN LISTS private TORCH_FOLDERS)
    string(FIND "${text}" "${path}/" position)
    if(NOT position EQUAL -1)
      message(FATAL_ERROR "${file} contains the path ${path}")
    endif()
  endforeach()
  if(file MATCHES "distgrad(Targets|Config)[^/]*\\.cmake$" AND text MATCHES "[\";]/[A-Za-z][^\";]*")
    message(FATAL_ERROR "${file} contains the absolute path ${CMAKE_MATCH_0}")
  endif()
endforeach()

set(configure "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/stranger" -B "${SCRATCH}/build"
  -D "CMAKE_PREFIX_PATH=${SCRATCH}/moved")
run(${configure})
run("${CMAKE_COMMAND}" --build "${SCRATCH}/build")
run("${SCRATCH}/build/headers")
run("${SCRATCH}/build/separate")

# Before 1.0 a new minor version may break its users, so they have to ask for it.
execute_process(COMMAND ${configure} -D DISTGRAD_WANTED=0.2 RESULT_VARIABLE result
  OUTPUT_QUIET ERROR_VARIABLE output)
if(result EQUAL 0 OR NOT output MATCHES "compatible")
  message(FATAL_ERROR "version 0.2 was asked for, and 0.1 accepted: ${output}")
endif()
