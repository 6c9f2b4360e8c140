# Runs the overlay port without vcpkg: its manifest is parsed, its portfile is included with
# stand-ins for vcpkg's functions, and a program is built with the result.
cmake_minimum_required(VERSION 3.24)
include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")

set(PORT distgrad)
set(CURRENT_PORT_DIR "${SOURCE}/packaging/vcpkg/ports/${PORT}")
set(CURRENT_PACKAGES_DIR "${SCRATCH}/packages")

# The manifest.
file(READ "${CURRENT_PORT_DIR}/vcpkg.json" manifest)
file(STRINGS "${SOURCE}/CMakeLists.txt" version REGEX "^project\\(")
string(REGEX REPLACE ".* VERSION ([0-9.]+) .*" "\\1" version "${version}")
function(expect value)  # expect(<value> <path in the manifest>...)
  string(JSON found GET "${manifest}" ${ARGN})
  if(NOT found STREQUAL value)
    message(FATAL_ERROR "vcpkg.json: ${ARGN} is \"${found}\" and should be \"${value}\"")
  endif()
endfunction()
expect(${PORT} name)
expect("${version}" version)
expect(BSL-1.0 license)
expect(boost-beast features beast dependencies 0)
expect(cuda features cuda dependencies 0 features 0)
expect(openssl features tls dependencies 0)

# Every object in a list of dependencies has a name; anything else is a name itself.
function(check_dependencies)
  string(JSON count LENGTH "${manifest}" ${ARGN})
  math(EXPR last "${count} - 1")
  foreach(i RANGE ${last})
    string(JSON type TYPE "${manifest}" ${ARGN} ${i})
    set(path ${ARGN} ${i})
    if(type STREQUAL "OBJECT")
      list(APPEND path name)
    endif()
    string(JSON name GET "${manifest}" ${path})
    if(NOT name MATCHES "^[a-z0-9]+(-[a-z0-9]+)*$")
      message(FATAL_ERROR "vcpkg.json: \"${name}\" in ${ARGN} is no name of a port")
    endif()
  endforeach()
endfunction()
check_dependencies(dependencies)
foreach(feature beast cuda tls)
  check_dependencies(features ${feature} dependencies)
endforeach()

# The stand-ins: what vcpkg documents that its functions do, for a port with one build type.
function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" SOURCE_PATH OPTIONS)
  run("${CMAKE_COMMAND}" -S "${arg_SOURCE_PATH}" -B "${SCRATCH}/source"
    "-DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}" -DBUILD_SHARED_LIBS=OFF ${arg_OPTIONS})
endfunction()

function(vcpkg_cmake_install)
  run("${CMAKE_COMMAND}" --install "${SCRATCH}/source")
endfunction()

# Moves the package to share/<port>. The prefix is two folders above it from then on.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" CONFIG_PATH "")
  set(moved "${CURRENT_PACKAGES_DIR}/share/${PORT}")
  file(RENAME "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}" "${moved}")
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/cmake")
  set(up "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\n")
  foreach(targets distgradTargets distgradWireTargets)
    file(READ "${moved}/${targets}.cmake" text)
    string(REPLACE "${up}${up}${up}" "${up}${up}" text "${text}")
    file(WRITE "${moved}/${targets}.cmake" "${text}")
  endforeach()
endfunction()

function(vcpkg_fixup_pkgconfig)
  if(NOT EXISTS "${CURRENT_PACKAGES_DIR}/share/pkgconfig/distgrad.pc")
    message(FATAL_ERROR "vcpkg looks for .pc files in share/pkgconfig and lib/pkgconfig")
  endif()
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" FILE_LIST)
  file(COPY_FILE "${arg_FILE_LIST}" "${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright")
endfunction()

include("${CURRENT_PORT_DIR}/portfile.cmake")

installed_files(share/distgrad expected)
expect_files("${CURRENT_PACKAGES_DIR}" ${expected}
  share/distgrad/copyright share/distgrad/usage)
build_project("${CMAKE_CURRENT_LIST_DIR}/light" -D "CMAKE_PREFIX_PATH=${CURRENT_PACKAGES_DIR}")
run("${SCRATCH}/build/light")
