#pragma once
// Every macro the library reads. Nothing else in the tree tests a macro, apart from
// tensor/compat.hpp, which asks libtorch for its version.

/// DISTGRAD_SEPARATE_COMPILATION (default: not defined). When defined in a whole program, headers
/// only declare what is no template, and exactly one source file includes <distgrad/src.hpp>,
/// which defines it. The CMake target `distgrad::src` does both.
#if defined(DISTGRAD_SEPARATE_COMPILATION)
#define DISTGRAD_DECL
#else
#define DISTGRAD_DECL inline
#endif
