# Runs an example and compares what it prints with the comment at its end.
#
#   cmake -D PROGRAM=build/dev/examples/quickstart -D SOURCE=examples/quickstart.cpp -P run_example.cmake
# ARGUMENTS, where there are some, are the program's.
cmake_minimum_required(VERSION 3.24)
include("${CMAKE_CURRENT_LIST_DIR}/example_output.cmake")

execute_process(COMMAND "${PROGRAM}" ${ARGUMENTS} OUTPUT_VARIABLE printed RESULT_VARIABLE status TIMEOUT 240)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} ended with ${status}; it printed:\n${printed}")
endif()
example_output("${SOURCE}" promised)
if(NOT printed STREQUAL promised)
  message(FATAL_ERROR "${PROGRAM} printed:\n${printed}\n${SOURCE} promises:\n${promised}")
endif()
