#pragma once
// Runs a graph in this thread, with libtorch's own autograd: what is right.

#include "passes.hpp"

namespace random_graphs {

/// The operands, or copies for an operation that may change them.
inline Tensors operands_of(Operation const& operation, Tensors operands) {
  if (operation.operands == Operands::own) {
    for (auto& operand : operands) operand = operand.clone();
  }
  return operands;
}

class Uncut {
 public:
  explicit Uncut(Graph const& graph) {
    for (auto const& node : graph.nodes) {
      Tensors inputs;
      for (auto const& input : node.inputs) inputs.push_back(value(input));
      inputs = operands_of(*node.operation, std::move(inputs));
      values_.push_back(node.operation->run(inputs, node.numbers));
    }
  }
  Uncut(Uncut const&) = delete;
  Uncut& operator=(Uncut const&) = delete;
  /// A gradient with a graph refers to its leaf: the circle has to be opened.
  ~Uncut() {
    for (auto const& values : values_) {
      if (values[0].is_leaf()) values[0].mutable_grad().reset();
    }
  }

  at::Tensor const& value(Value v) const { return values_[v.node][v.output]; }
  at::Tensor const& leaf(int number) const { return values_[number][0]; }
  at::Tensor gradient(int leaf) const { return values_[leaf][0].grad(); }

  void backward(Roots const& roots, bool retain_graph, bool create_graph) const {
    torch::autograd::backward(roots.tensors, roots.gradients, retain_graph, create_graph);
  }
  Tensors grad(Roots const& roots, Tensors const& inputs) const {
    return torch::autograd::grad(roots.tensors, inputs, roots.gradients, true, true, true);
  }

 private:
  std::vector<Tensors> values_;
};

}  // namespace random_graphs
