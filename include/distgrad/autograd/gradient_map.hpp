#pragma once
#include <cstddef>
#include <unordered_map>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <distgrad/config.hpp>
#include <distgrad/queue/stream_order.hpp>

namespace distgrad {

/// Gradients by leaf variable, summed by the rules by which libtorch fills `.grad`, which stays
/// untouched. A backward pass fills one; at its end it is merged into the context's.
/// @threads a shared object needs the caller's lock, for reading too: a later gradient may be added
/// in place.
class GradientMap {
 public:
  struct Entry {
    at::Tensor variable;  ///< The leaf; held, so that its identity stays valid as a key.
    at::Tensor gradient;  ///< Always defined.
  };

  /// Adds `gradient` to what `variable` has.
  ///
  /// The first gradient is kept without a copy when nobody else refers to it and its strides suit
  /// the variable; otherwise a copy with the variable's strides is kept. Later ones are added in
  /// place (sparse + dense makes a new dense one; with `create_graph` every sum is a new tensor).
  /// @param variable the leaf.
  /// @param gradient defined, shape and device of `variable`. Move it in, or it will be copied.
  /// @param create_graph whether the sum itself shall be differentiable.
  /// @param expected_references how many references may exist for it still to be kept without a
  /// copy: 1 is this parameter alone, 0 asks for a copy in any case.
  void accumulate(at::Tensor const& variable, at::Tensor gradient, bool create_graph = false,
                  std::size_t expected_references = 1);

  /// Moves every gradient of `other` in here, adding where there is one already, and empties it.
  /// @param order given in an engine with devices: the sums are made on the current streams.
  void merge(GradientMap&& other, bool create_graph = false, StreamOrder* order = nullptr);

  /// In an engine with devices, before gradients are read or written: the calling thread's current
  /// streams go on after all that used the map before, and keep what it holds.
  void enter(StreamOrder& order);
  /// A gradient was added on `stream`, which nothing else here is waited for on.
  void add_use(c10::Stream stream) { uses_.add(stream); }

  /// Adds every gradient to its variable's `.grad`, and empties the map. One caller at a time in
  /// the process: `.grad` belongs to the tensor, whichever engine's pass comes there.
  void add_to_grad(bool create_graph = false);

  /// The gradient of `variable`; undefined when there is none. The tensor is shared, no copy.
  at::Tensor find(at::Tensor const& variable) const;
  /// The same for the calling thread's current streams, which go on after all other uses.
  at::Tensor find(at::Tensor const& variable, StreamOrder& order);
  bool contains(at::Tensor const& variable) const { return index_.contains(key(variable)); }

  /// All gradients in the order in which their variables were first met.
  std::vector<Entry> const& entries() const noexcept { return entries_; }

  /// Calls `visit(variable, gradient)` for each entry, in the order of `entries()`.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (Entry const& entry : entries_) visit(entry.variable, entry.gradient);
  }

  std::size_t size() const noexcept { return entries_.size(); }
  bool empty() const noexcept { return entries_.empty(); }
  void clear() noexcept;

 private:
  using Key = c10::TensorImpl const*;
  static Key key(at::Tensor const& variable) { return variable.unsafeGetTensorImpl(); }
  at::Tensor& slot(at::Tensor const& variable);

  std::vector<Entry> entries_;
  std::unordered_map<Key, std::size_t> index_;
  StreamUses uses_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/autograd/impl/gradient_map.ipp>
#endif
