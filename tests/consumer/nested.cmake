# Builds a project that has distgrad's sources as a subdirectory.
cmake_minimum_required(VERSION 3.24)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${SCRATCH}")
run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/nested" -B "${SCRATCH}/build"
  -D "DISTGRAD_SOURCE=${SOURCE}")
run("${CMAKE_COMMAND}" --build "${SCRATCH}/build")
run("${SCRATCH}/build/light")

execute_process(COMMAND "${CMAKE_CTEST_COMMAND}" --test-dir "${SCRATCH}/build" --show-only
  OUTPUT_VARIABLE tests)
if(NOT tests MATCHES "Total Tests: 0")
  message(FATAL_ERROR "distgrad's tests became the stranger's: ${tests}")
endif()
