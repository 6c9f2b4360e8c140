# Builds and runs the plugins of the examples as a stranger would: against an installed copy, moved.
cmake_minimum_required(VERSION 3.24)
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/first")
file(RENAME "${SCRATCH}/first" "${SCRATCH}/moved")

# Both in one build folder, so that distgrad::src is compiled once for the two.
build_project("${CMAKE_CURRENT_LIST_DIR}/plugins"
  -D "CMAKE_PREFIX_PATH=${SCRATCH}/moved" -D "EXAMPLES=${SOURCE}/examples")
run("${CMAKE_CTEST_COMMAND}" --test-dir "${SCRATCH}/build" --output-on-failure --no-tests=error)

run("${CMAKE_COMMAND}" -D "PROGRAM=${SCRATCH}/build/plugin_serializer/gradient_error"
  -D "SOURCE=${SOURCE}/examples/plugin_serializer/gradient_error.cpp"
  -P "${SOURCE}/tests/readme/run_example.cmake")
run("${SOURCE}/scripts/demo" --program "${SCRATCH}/build/plugin/train_digits"
  -- --data "${SOURCE}/examples/data/digits.csv")
