#pragma once
#include <distgrad/engine/input_buffer.hpp>

#include <utility>

#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>

namespace distgrad {
namespace detail {

// No wrapper of a transform, no lazy conjugate, negative or zero: what is written is the storage.
inline bool is_plain(at::Tensor const& tensor) {
  constexpr c10::DispatchKeySet wrappers({c10::DispatchKey::FuncTorchGradWrapper,
                                          c10::DispatchKey::FuncTorchBatched,
                                          c10::DispatchKey::Batched, c10::DispatchKey::Python});
  return tensor.layout() == at::kStrided && !tensor.is_meta() && !tensor.is_nested() &&
         !tensor._is_zerotensor() && !tensor.is_conj() && !tensor.is_neg() &&
         !tensor.unsafeGetTensorImpl()->key_set().has_any(wrappers);
}

inline bool may_write(at::Tensor const& tensor) {
  return is_plain(tensor) && tensor.is_non_overlapping_and_dense() && tensor.use_count() == 1 &&
         tensor.has_storage() && tensor.storage().use_count() == 1;
}

// The tensor that is written must already have the type of the sum.
inline bool may_add_in_place(at::Tensor const& target, at::Tensor const& other) {
  return may_write(target) && target.scalar_type() == other.scalar_type() &&
         (other.is_sparse() || is_plain(other));
}

}  // namespace detail

DISTGRAD_DECL void add_to_input(at::Tensor& sum, at::Tensor&& gradient) {
  if (!gradient.defined()) return;
  if (!sum.defined()) {
    sum = std::move(gradient);
    return;
  }
  bool const in_place = !c10::GradMode::is_enabled();
  // libtorch adds a sparse sum to the new gradient, not the other way round: dense plus sparse is
  // cheaper, and of two sparse ones the order of their elements decides how coalescing rounds.
  bool const swapped = sum.layout() != at::kStrided;
  at::Tensor& target = swapped ? gradient : sum;
  at::Tensor const& other = swapped ? sum : gradient;
  if (in_place && detail::may_add_in_place(target, other)) {
    target.add_(other);
    if (swapped) sum = std::move(target);
  } else {
    sum = target.add(other);
  }
}

}  // namespace distgrad
