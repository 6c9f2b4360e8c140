# Compiles each public header of an installed copy on its own; headers/CMakeLists.txt says how.
cmake_minimum_required(VERSION 3.24)
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/prefix")
build_project("${CMAKE_CURRENT_LIST_DIR}/headers" -D "CMAKE_PREFIX_PATH=${SCRATCH}/prefix")
