# Makes the Debian package, installs it below a root of its own with dpkg, and uses it there.
cmake_minimum_required(VERSION 3.24)
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

execute_process(COMMAND dpkg-query --status libtorch-dev
  RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
if(NOT result EQUAL 0)
  skip("libtorch is no Debian package here")
  return()
endif()

run("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${SCRATCH}/source"
  -D DISTGRAD_BUILD_TESTS=OFF -D DISTGRAD_BUILD_EXAMPLES=OFF -D DISTGRAD_BUILD_BENCH=OFF)
run("${CMAKE_CPACK_COMMAND}" -G DEB --config "${SCRATCH}/source/CPackConfig.cmake" -B "${SCRATCH}")
file(GLOB package "${SCRATCH}/*.deb")
if(NOT package MATCHES "/libdistgrad-dev_0\\.1\\.0_all\\.deb$")
  message(FATAL_ERROR "cpack made \"${package}\"")
endif()

# A system in which nothing is installed, and this one's words about what the package needs.
set(root "${SCRATCH}/root")
set(database "${SCRATCH}/dpkg")
file(MAKE_DIRECTORY "${root}" "${database}/info" "${database}/updates" "${database}/triggers")
file(WRITE "${database}/status" "")
set(install dpkg --force-not-root,bad-path --log=/dev/null
  "--instdir=${root}" "--admindir=${database}" --install "${package}")
run_failing("libdistgrad-dev depends on libtorch-dev" ${install})
foreach(needed libtorch-dev libboost1.81-dev libboost-dev)
  execute_process(COMMAND dpkg-query --status "${needed}" OUTPUT_VARIABLE status ERROR_QUIET)
  file(APPEND "${database}/status" "${status}\n")
endforeach()
run(${install})

installed_files(share/cmake/distgrad expected)
expect_files("${root}/usr" ${expected}
  share/doc/distgrad/LICENSE share/doc/libdistgrad-dev/copyright)
build_project("${CMAKE_CURRENT_LIST_DIR}/light" -D "CMAKE_PREFIX_PATH=${root}/usr")
run("${SCRATCH}/build/light")
