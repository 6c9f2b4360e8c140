# Builds a project that has distgrad's sources below its own: in a subdirectory, or by FetchContent.
cmake_minimum_required(VERSION 3.24)
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

build_project("${CMAKE_CURRENT_LIST_DIR}/${PROJECT}"
  -D "DISTGRAD_SOURCE=${SOURCE}" -D "FETCHCONTENT_SOURCE_DIR_DISTGRAD=${SOURCE}")
run("${SCRATCH}/build/light")

execute_process(COMMAND "${CMAKE_CTEST_COMMAND}" --test-dir "${SCRATCH}/build" --show-only
  OUTPUT_VARIABLE tests)
if(NOT tests MATCHES "Total Tests: 0")
  message(FATAL_ERROR "distgrad's tests became the stranger's: ${tests}")
endif()
