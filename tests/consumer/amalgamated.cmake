# Makes the one-file version, compares it with the tree, and runs the quick start with it.
cmake_minimum_required(VERSION 3.24)
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

set(one "${SCRATCH}/include/distgrad/distgrad.hpp")
run("${SOURCE}/scripts/amalgamate" "${one}")
file(READ "${one}" text LIMIT 2000)
if(NOT text MATCHES "Boost Software License")
  message(FATAL_ERROR "${one} does not start with the licence")
endif()

build_project("${CMAKE_CURRENT_LIST_DIR}/amalgamated"
  -D "DISTGRAD_SOURCE=${SOURCE}" -D "ONE=${SCRATCH}/include")

run("${CMAKE_COMMAND}" -D "PROGRAM=${SCRATCH}/build/quickstart"
  -D "SOURCE=${SOURCE}/examples/quickstart.cpp" -P "${SOURCE}/tests/readme/run_example.cmake")
