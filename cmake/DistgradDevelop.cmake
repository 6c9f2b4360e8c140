# How distgrad's own tests, examples and benchmarks are compiled. Nothing of it reaches a user.

add_library(distgrad_develop INTERFACE)
target_compile_options(distgrad_develop INTERFACE -Wall -Wextra)

if(DISTGRAD_SANITIZE)
  target_compile_options(distgrad_develop INTERFACE
    -fsanitize=${DISTGRAD_SANITIZE} -fno-omit-frame-pointer
    # Boost.Asio's fences: TSan ignores them, and g++ says so in every file.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  target_link_options(distgrad_develop INTERFACE -fsanitize=${DISTGRAD_SANITIZE})
endif()

# The default linker takes seconds for each program; any of these takes less.
foreach(linker mold lld gold)
  find_program(DISTGRAD_LINKER_${linker} NAMES ${linker} ld.${linker})
  if(DISTGRAD_LINKER_${linker})
    include(CheckLinkerFlag)
    check_linker_flag(CXX -fuse-ld=${linker} DISTGRAD_HAVE_LINKER_${linker})
    if(DISTGRAD_HAVE_LINKER_${linker})
      target_link_options(distgrad_develop INTERFACE -fuse-ld=${linker})
      break()
    endif()
  endif()
endforeach()

if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(DISTGRAD_CCACHE ccache)
  if(DISTGRAD_CCACHE)
    # Without these ccache does not store files that use a precompiled header.
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros "${DISTGRAD_CCACHE}")
    set_target_properties(distgrad_src PROPERTIES
      CXX_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
    target_compile_options(distgrad_develop INTERFACE
      $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
      $<$<CXX_COMPILER_ID:Clang>:-Xclang$<SEMICOLON>-fno-pch-timestamp>)
  endif()
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set_target_properties(distgrad_src PROPERTIES CXX_EXTENSIONS OFF)
target_link_libraries(distgrad_src PRIVATE distgrad_develop)

# What examples, benchmarks and the tests' programs with a `main` of their own compile once: reading
# libtorch's headers takes most of the time of each.
file(CONFIGURE OUTPUT headers.cpp CONTENT "// The headers are precompiled with it.\n")
add_library(distgrad_headers OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_BINARY_DIR}/headers.cpp")
target_link_libraries(distgrad_headers PRIVATE distgrad::src distgrad_develop)
target_precompile_headers(distgrad_headers PRIVATE <distgrad/distgrad.hpp>)
