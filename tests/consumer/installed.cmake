# Installs, moves the prefix, and builds a stranger's project against what was moved.
cmake_minimum_required(VERSION 3.24)
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${SCRATCH}/first")
file(RENAME "${SCRATCH}/first" "${SCRATCH}/moved")

set(package_dir share/cmake/distgrad)
installed_files(${package_dir} expected)
expect_files("${SCRATCH}/moved" ${expected}
  share/doc/distgrad/LICENSE)

# Nothing of the package may know where it was built, or where libtorch was.
set(private "${SOURCE}" "${BUILD}" "${SCRATCH}/first")
string(REPLACE ":" ";" TORCH_FOLDERS "${TORCH_FOLDERS}")
list(REMOVE_ITEM TORCH_FOLDERS "/usr/include")  # too common a word
file(GLOB_RECURSE package "${SCRATCH}/moved/share/*")
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

# A user links these, made anew on his machine, and nothing else.
file(READ "${SCRATCH}/moved/${package_dir}/distgradTargets.cmake" targets)
string(REGEX MATCHALL
  "INTERFACE_LINK_LIBRARIES \"[^\"]*\"|add_library\\([^)]*\\)" linked "${targets}")
set(wanted "add_library(distgrad::distgrad INTERFACE IMPORTED)"
  "INTERFACE_LINK_LIBRARIES \"distgrad::torch;Boost::headers;Threads::Threads\"")
if(NOT linked STREQUAL wanted)
  message(FATAL_ERROR "exported are ${linked}")
endif()

set(stranger "${CMAKE_CURRENT_LIST_DIR}/stranger")
build_project("${stranger}" -D "CMAKE_PREFIX_PATH=${SCRATCH}/moved")
run("${SCRATCH}/build/separate")
run("${SCRATCH}/build/headers")

# What is asked for and cannot be had is named. Before 1.0 a new minor version may break its users,
# so they have to ask for it.
set(configure "${CMAKE_COMMAND}" -S "${stranger}" -B "${SCRATCH}/build")
run_failing("compatible with requested version \"0.2\"" ${configure} -D WANTED_VERSION=0.2)
run_failing("distgrad has no component 'tsl'; it has beast, "
  ${configure} -D WANTED_VERSION=0.1 -D WANTED_COMPONENTS=tsl)
run_failing("component 'tls' needs OpenSSL, which was not found"
  ${configure} -D WANTED_COMPONENTS=tls -D CMAKE_DISABLE_FIND_PACKAGE_OpenSSL=ON)
run_failing("component 'beast' needs the headers of Boost.Beast"
  ${configure} -D WANTED_COMPONENTS=beast -D DISTGRAD_BEAST_INCLUDE=)
run_failing("Boost 1.81 or newer" ${configure} -D CMAKE_DISABLE_FIND_PACKAGE_Boost=ON)

# Without libtorch, distgrad::wire is there.
file(REMOVE_RECURSE "${SCRATCH}/build")  # of another project
set(without_torch -D CMAKE_DISABLE_FIND_PACKAGE_Torch=ON)
build_project("${CMAKE_CURRENT_LIST_DIR}/wire"
  -D "CMAKE_PREFIX_PATH=${SCRATCH}/moved" -D "EXAMPLES=${SOURCE}/examples" ${without_torch})
