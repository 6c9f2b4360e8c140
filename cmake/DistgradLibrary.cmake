# distgrad::distgrad, the headers.

file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/distgrad/*.hpp")
file(GLOB_RECURSE bodies CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/distgrad/*.ipp")
# What cannot be compiled alone, or not everywhere.
set(others src.hpp queue/cuda_queues.hpp)
list(TRANSFORM others PREPEND "${PROJECT_SOURCE_DIR}/include/distgrad/")
list(REMOVE_ITEM headers ${others})
list(APPEND bodies ${others})

add_library(distgrad INTERFACE)
add_library(distgrad::distgrad ALIAS distgrad)
target_sources(distgrad INTERFACE
  FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${headers}
  # Installed as well, but nothing for the header check.
  FILE_SET bodies TYPE HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${bodies})
target_compile_features(distgrad INTERFACE cxx_std_20)
target_link_libraries(distgrad INTERFACE distgrad::torch Boost::headers Threads::Threads)

# The same headers for what needs no libtorch: core, wire, transport, rendezvous and raw. These
# compile with -fno-exceptions -fno-rtti, too.
add_library(distgrad_wire INTERFACE)
add_library(distgrad::wire ALIAS distgrad_wire)
set_target_properties(distgrad_wire PROPERTIES EXPORT_NAME wire)
target_include_directories(distgrad_wire INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_compile_features(distgrad_wire INTERFACE cxx_std_20)
target_link_libraries(distgrad_wire INTERFACE Boost::headers Threads::Threads)

# `cmake --build . --target all_verify_interface_header_sets` compiles each header alone.
set_target_properties(distgrad PROPERTIES
  VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL}
  INTERFACE_HEADER_SETS_TO_VERIFY HEADERS)

# Beside it what programs ask for by name: distgrad::src, and the extras whose needs are met here.
file(GLOB components CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/components/*.cmake")
foreach(component IN LISTS components)
  unset(DISTGRAD_MISSING)
  include("${component}")
  if(DISTGRAD_MISSING)
    message(STATUS "distgrad: ${DISTGRAD_MISSING}")
  endif()
endforeach()
