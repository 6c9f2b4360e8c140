# What distgrad needs from outside. Read by the build and, installed, by distgradConfig.cmake.

find_package(Threads REQUIRED)

# Boost's own config file first: newer CMake no longer ships the module, older Boost has only it.
if(NOT TARGET Boost::headers)
  find_package(Boost 1.81 CONFIG QUIET)
  if(NOT TARGET Boost::headers)
    find_package(Boost 1.81 MODULE QUIET)
  endif()
endif()
if(NOT TARGET Boost::headers)
  string(CONCAT DISTGRAD_MISSING "Boost 1.81 or newer (headers only) was not found. "
    "On Debian 12: apt-get install libboost1.81-dev")
endif()

if(NOT DISTGRAD_WITHOUT_TORCH)
  include(${CMAKE_CURRENT_LIST_DIR}/DistgradTorch.cmake)
endif()
if(NOT DISTGRAD_WITHOUT_TORCH AND NOT TARGET distgrad::torch)
  string(CONCAT DISTGRAD_MISSING "libtorch was not found. On Debian: apt-get install libtorch-dev; "
    "elsewhere name its folder in CMAKE_PREFIX_PATH (of a PyPI wheel: .../site-packages/torch)")
endif()

# An installed copy lets find_package report it; in the source tree nothing can follow.
if(DISTGRAD_MISSING AND NOT CMAKE_FIND_PACKAGE_NAME STREQUAL "distgrad")
  message(FATAL_ERROR "distgrad: ${DISTGRAD_MISSING}")
endif()
