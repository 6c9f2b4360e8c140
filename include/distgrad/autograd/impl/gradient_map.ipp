#pragma once
#include <distgrad/autograd/gradient_map.hpp>

#include <mutex>
#include <utility>

#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>

#include <distgrad/serialize/keep_on_streams.hpp>
#include <distgrad/tensor/compat.hpp>

namespace distgrad {
namespace detail {

// libtorch's own template decides between keeping, copying and adding in place: it is in a public
// header of every version, and following it keeps strides as its optimizers expect them.
inline void add_gradient(at::Tensor const& variable, at::Tensor& sum, at::Tensor const& gradient,
                         bool create_graph, std::size_t expected_references) {
  c10::AutoGradMode const mode(create_graph);
  torch::autograd::AccumulateGrad::accumulateGrad(
      variable, sum, gradient, expected_references,
      [&sum](at::Tensor&& result) { sum = std::move(result); });
}

}  // namespace detail

DISTGRAD_DECL void GradientMap::accumulate(at::Tensor const& variable, at::Tensor gradient,
                                           bool create_graph, std::size_t expected_references) {
  at::Tensor& sum = slot(variable);
  try {
    detail::add_gradient(variable, sum, gradient, create_graph, expected_references);
  } catch (...) {
    if (!sum.defined()) {  // an entry without gradient must not stay
      index_.erase(key(variable));
      entries_.pop_back();
    }
    throw;
  }
}

DISTGRAD_DECL void GradientMap::enter(StreamOrder& order) {
  uses_.enter(order);
  for (Entry& entry : entries_) keep_on_streams(entry.gradient, order);
}

DISTGRAD_DECL void GradientMap::merge(GradientMap&& other, bool create_graph, StreamOrder* order) {
  if (order) {
    other.enter(*order);
    enter(*order);
  }
  entries_.reserve(entries_.size() + other.entries_.size());
  for (Entry& entry : other.entries_) {
    at::Tensor& sum = slot(entry.variable);
    if (sum.defined()) {
      detail::add_gradient(entry.variable, sum, entry.gradient, create_graph, 1);
    } else {
      sum = std::move(entry.gradient);
    }
  }
  other.clear();
}

DISTGRAD_DECL void GradientMap::add_to_grad(bool create_graph) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  for (Entry& entry : entries_) {
    at::Tensor& sum = entry.variable.mutable_grad();
    if (sum.defined()) {
      detail::add_gradient(entry.variable, sum, entry.gradient, create_graph, 1);
    } else {
      sum = std::move(entry.gradient);
    }
  }
  clear();
}

DISTGRAD_DECL at::Tensor GradientMap::find(at::Tensor const& variable) const {
  auto const found = index_.find(key(variable));
  return found == index_.end() ? at::Tensor() : entries_[found->second].gradient;
}

DISTGRAD_DECL at::Tensor GradientMap::find(at::Tensor const& variable, StreamOrder& order) {
  auto gradient = find(variable);
  uses_.enter(order);
  keep_on_streams(gradient, order);
  return gradient;
}

DISTGRAD_DECL void GradientMap::clear() noexcept {
  entries_.clear();
  index_.clear();
}

DISTGRAD_DECL at::Tensor& GradientMap::slot(at::Tensor const& variable) {
  auto const [found, is_new] = index_.try_emplace(key(variable), entries_.size());
  if (is_new) entries_.push_back({variable, {}});
  return entries_[found->second].gradient;
}

}  // namespace distgrad
