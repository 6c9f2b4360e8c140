#pragma once
#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <distgrad/config.hpp>

namespace distgrad {

/// Adds `gradient` to `sum`, one input of a node that waits for gradients along several edges.
///
/// In place when nobody can notice: grad mode is off, the tensor that is written is a plain dense
/// one, and neither it nor its storage is referenced from anywhere else. A sum of a sparse and a
/// dense gradient is dense.
/// @param sum undefined before the first gradient.
/// @param gradient undefined ones add nothing.
DISTGRAD_DECL void add_to_input(at::Tensor& sum, at::Tensor&& gradient);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/input_buffer.ipp>
#endif
