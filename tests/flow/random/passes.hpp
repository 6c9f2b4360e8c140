#pragma once
// The backward passes of a graph, cut or not.

#include <torch/csrc/autograd/autograd.h>

#include <ATen/ops/full_like.h>

#include "graph.hpp"

namespace random_graphs {

/// Where passes start, with the gradients they start with.
struct Roots {
  Tensors tensors;
  Tensors gradients;
};

/// The gradient with which a pass starts at the sink of this number.
inline double start_of(std::size_t number) { return 1.0 - 0.25 * double(number % 8); }

/// @param value gives a sink's tensor.
template <class Value>
Roots roots_of(Pass const& pass, Value&& value) {
  Roots roots;
  if (!pass.summed) {
    for (auto const& sink : pass.sinks) {
      roots.tensors.push_back(value(sink));
      roots.gradients.push_back(
          at::full_like(roots.tensors.back().detach(), start_of(roots.gradients.size())));
    }
    return roots;
  }
  at::Tensor sum;
  for (auto const& sink : pass.sinks) {
    auto const part = value(sink).sum();
    sum = sum.defined() ? sum.add(part) : part;
  }
  return {{sum}, {}};
}

/// A loss of those gradients that can be differentiated; undefined if there are none.
inline at::Tensor penalty_of(Tensors const& gradients) {
  at::Tensor sum;
  for (auto const& gradient : gradients) {
    if (!gradient.defined() || !gradient.requires_grad()) continue;
    auto const part = gradient.clone().sin().sum();
    sum = sum.defined() ? sum.add(part) : part;
  }
  return sum;
}

/// Leaves of the initiator whose gradients are differentiated again. Not those with hooks: whether
/// `grad` calls them depends on libtorch's version.
inline std::vector<int> second_leaves(Graph const& graph) {
  std::vector<int> leaves;
  for (int i = 0; i < graph.leaves(); ++i) {
    auto const& leaf = graph.nodes[i];
    if (leaf.keep != Keep::sent || leaf.numbers[3] == 0) continue;
    if (leaf.operation == &operations::leaf) leaves.push_back(i);
  }
  return leaves;
}

/// @tparam Side has `value`, `leaf`, `backward`, `grad` and `gradient`.
template <class Side>
void run_passes(Graph const& graph, Side& side) {
  auto const value = [&](Value v) { return side.value(v); };
  if (graph.second == Second::none) {
    for (std::size_t i = 0; i < graph.passes.size(); ++i) {
      bool const retain_graph = i + 1 < graph.passes.size();
      side.backward(roots_of(graph.passes[i], value), retain_graph, false);
    }
    return;
  }
  auto const roots = roots_of(graph.passes[0], value);
  auto const leaves = second_leaves(graph);
  Tensors gradients;
  if (graph.second == Second::by_grad && !leaves.empty()) {
    Tensors inputs;
    for (int i : leaves) inputs.push_back(side.leaf(i));
    gradients = side.grad(roots, inputs);
  } else {
    side.backward(roots, true, true);
    for (int i : leaves) gradients.push_back(side.gradient(i));
  }
  auto const penalty = penalty_of(gradients);
  if (penalty.defined()) side.backward({{penalty}, {}}, false, false);
}

}  // namespace random_graphs
