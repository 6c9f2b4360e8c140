# Compiles with the flags pkg-config gives for a copy that was moved.
cmake_minimum_required(VERSION 3.24)
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

find_program(PKG_CONFIG NAMES pkg-config pkgconf)
if(NOT PKG_CONFIG)
  skip("pkg-config is not installed")
  return()
endif()

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/first")
file(RENAME "${SCRATCH}/first" "${SCRATCH}/moved")
set(ENV{PKG_CONFIG_PATH} "${SCRATCH}/moved/share/pkgconfig")

execute_process(COMMAND "${PKG_CONFIG}" --cflags --libs "distgrad >= 0.1"
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
run($ENV{CXX} -std=c++20 "${CMAKE_CURRENT_LIST_DIR}/light/light.cpp" ${flags}
  -o "${SCRATCH}/light")
run("${SCRATCH}/light")

# A sensor has nothing of libtorch in its flags.
execute_process(COMMAND "${PKG_CONFIG}" --cflags --libs distgrad-wire
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(flags MATCHES "torch|c10")
  message(FATAL_ERROR "libtorch in ${flags}")
endif()
separate_arguments(flags UNIX_COMMAND "${flags}")
run($ENV{CXX} -std=c++20 -fno-exceptions -fno-rtti "${SOURCE}/examples/sensor/sensor.cpp" ${flags}
  -o "${SCRATCH}/sensor")

# libtorch elsewhere is one variable.
set(elsewhere --define-variable=torch_prefix=/opt/torch)
execute_process(COMMAND "${PKG_CONFIG}" ${elsewhere} --cflags --libs distgrad
  OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
foreach(flag -I/opt/torch/include -I/opt/torch/include/torch/csrc/api/include -L/opt/torch/lib)
  if(NOT "${flags} " MATCHES "${flag}[ \n]")
    message(FATAL_ERROR "no ${flag} in ${flags}")
  endif()
endforeach()
