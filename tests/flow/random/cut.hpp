#pragma once
// Runs a graph on several workers.

#include <chrono>
#include <optional>
#include <string>

#include "passes.hpp"

namespace random_graphs {

/// One operand as another worker gets it: a tensor, or one of the tensors of a remote value.
struct Operand {
  at::Tensor tensor;
  std::optional<distgrad::RRef<Tensors>> reference;
  std::int64_t output = 0;
};

/// An operation, and the workers that are still to be asked, the last of which runs it.
struct Task {
  std::int64_t operation = 0;
  Numbers numbers;
  std::vector<int> way;
};

inline int next_on(std::vector<int>& way) {
  int const next = way.front();
  way.erase(way.begin());
  return next;
}

inline at::Tensor take(Operand const& operand, bool own) {
  if (!operand.reference) return operand.tensor;
  auto const tensor = operand.reference->to_here()[operand.output];
  return own && operand.reference->is_owner() ? tensor.clone() : tensor;
}

inline Tensors run(Task task, std::vector<Operand> const& operands) {
  if (!task.way.empty()) {
    int const next = next_on(task.way);
    return distgrad::this_worker().rpc_sync<run>(next, task, operands);
  }
  auto const& operation = *all_operations.at(task.operation);
  Tensors inputs;
  for (auto const& operand : operands) {
    inputs.push_back(take(operand, operation.operands == Operands::own));
  }
  return operation.run(inputs, task.numbers);
}

/// The result stays on the last worker of the way.
inline distgrad::RRef<Tensors> run_and_keep(Task task, std::vector<Operand> const& operands) {
  int const next = next_on(task.way);
  auto const& self = distgrad::this_worker();
  return task.way.empty() ? self.remote<run>(next, task, operands)
                          : self.rpc_sync<run_and_keep>(next, task, operands);
}

/// In the context of the call.
inline at::Tensor gradient_of(distgrad::RRef<Tensors> const& leaf) {
  auto const& self = distgrad::this_worker();
  auto const gradient = self.context_part(self.current_context())->gradient(leaf.local_value()[0]);
  return gradient.defined() ? gradient.detach() : gradient;
}

/// A node's results, as the initiator has them.
struct Held {
  Tensors tensors;
  distgrad::RRef<Tensors> reference;

  bool is_here() const { return !reference.is_valid(); }
  Operand operand(int output) const {
    return is_here() ? Operand{tensors[output], {}, 0} : Operand{{}, reference, output};
  }
  at::Tensor value(int output) const {
    return is_here() ? tensors[output] : reference.to_here()[output];
  }
};

inline Task task_of(Node const& node) {
  auto const found = std::find(all_operations.begin(), all_operations.end(), node.operation);
  Task task{found - all_operations.begin(), node.numbers, node.relays};
  task.way.push_back(node.worker);
  return task;
}

inline Held run_node(distgrad::Worker const& self, Node const& node,
                     std::vector<Operand> const& operands) {
  auto task = task_of(node);
  if (node.is_leaf() && node.keep == Keep::sent) return {node.operation->run({}, node.numbers), {}};
  int const next = next_on(task.way);
  switch (node.keep) {
    case Keep::sent: return {self.rpc_sync<run>(next, task, operands), {}};
    case Keep::at_relay: return {{}, self.remote<run>(next, task, operands)};
    case Keep::at_worker: break;
  }
  if (task.way.empty()) return {{}, self.remote<run>(next, task, operands)};
  return {{}, self.rpc_sync<run_and_keep>(next, task, operands)};
}

/// A graph after its forward pass, in a context that lives as long as this.
class Cut {
 public:
  Cut(distgrad::Worker const& self, Graph const& graph, distgrad::BackwardMode mode)
      : self_(self), mode_(mode), held_(leaves_of(self, graph)), context_(self.context()) {
    for (std::size_t i = held_.size(); i < graph.nodes.size(); ++i) {
      auto const& node = graph.nodes[i];
      std::vector<Operand> operands;
      for (auto const& input : node.inputs) {
        operands.push_back(held_[input.node].operand(input.output));
      }
      held_.push_back(run_node(self, node, operands));
    }
    for (auto const& sink : graph.sinks()) {
      sinks_.emplace_back(sink, held_[sink.node].value(sink.output));
    }
  }

  at::Tensor const& value(Value v) const {
    for (auto const& [sink, tensor] : sinks_) {
      if (sink == v) return tensor;
    }
    throw std::logic_error("not a sink");
  }
  at::Tensor const& leaf(int number) const { return held_[number].tensors[0]; }
  at::Tensor gradient(int number) const {
    auto const& leaf = held_[number];
    if (leaf.is_here()) return context_.gradient(leaf.tensors[0]);
    return self_.rpc_sync<gradient_of>(leaf.reference.owner().id, leaf.reference);
  }

  void backward(Roots const& roots, bool retain_graph, bool create_graph) {
    context_.backward(roots.tensors, options(roots, retain_graph, create_graph));
  }
  Tensors grad(Roots const& roots, Tensors const& inputs) {
    return context_.grad(roots.tensors, inputs, options(roots, true, true));
  }

 private:
  static std::vector<Held> leaves_of(distgrad::Worker const& self, Graph const& graph) {
    std::vector<Held> leaves;
    for (int i = 0; i < graph.leaves(); ++i) leaves.push_back(run_node(self, graph.nodes[i], {}));
    return leaves;
  }
  distgrad::BackwardOptions options(Roots const& roots, bool retain, bool create) const {
    return {.mode = mode_,
            .retain_graph = retain,
            .create_graph = create,
            .gradients = roots.gradients,
            .timeout = std::chrono::seconds(30)};
  }

  distgrad::Worker const& self_;
  distgrad::BackwardMode mode_;
  std::vector<Held> held_;
  distgrad::Context context_;
  std::vector<std::pair<Value, at::Tensor>> sinks_;
};

}  // namespace random_graphs
