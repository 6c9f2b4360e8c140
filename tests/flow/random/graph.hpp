#pragma once
// What a random graph is: operations, where they run, how their results travel, and the passes that
// follow. And what can be said of it without running it.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "operations.hpp"

namespace random_graphs {

enum class Layout { dense, sparse, integer };
struct Shape {
  std::int64_t rows = 0, columns = 0;
  Layout layout = Layout::dense;
  bool operator==(Shape const&) const = default;
};
/// One result of a node.
struct Value {
  int node = 0, output = 0;
  bool operator==(Value const&) const = default;
};

/// What becomes of a call's results.
enum class Keep {
  sent,       ///< Returned to the initiator, which sends them to each user.
  at_worker,  ///< Stay where they were made; each user fetches them.
  at_relay,   ///< Returned to the first relay and stay there.
};

/// An operation and where it runs.
struct Node {
  Operation const* operation = nullptr;
  Numbers numbers;
  std::vector<Value> inputs;
  std::vector<Shape> outputs;
  int worker = 0;
  /// Workers that are asked to have it run, one through the other.
  std::vector<int> relays;
  Keep keep = Keep::sent;

  bool is_leaf() const { return inputs.empty(); }
};

/// A backward pass from `sinks`: from the sum of all their elements, or from each with a gradient.
struct Pass {
  std::vector<Value> sinks;
  bool summed = true;
};

/// How the gradients of the first pass are differentiated again.
enum class Second { none, by_grad, by_backward };

struct Graph {
  std::uint64_t seed = 0;
  int initiator = 0;
  /// Leaves come first.
  std::vector<Node> nodes;
  std::vector<Pass> passes;
  Second second = Second::none;

  Node const& operator[](Value v) const { return nodes[v.node]; }
  int leaves() const {
    auto const is_leaf = [](Node const& node) { return node.is_leaf(); };
    return int(std::find_if_not(nodes.begin(), nodes.end(), is_leaf) - nodes.begin());
  }
  /// All values from which a pass starts, each once.
  std::vector<Value> sinks() const {
    std::vector<Value> all;
    for (auto const& pass : passes) {
      for (auto const& sink : pass.sinks) {
        if (std::find(all.begin(), all.end(), sink) == all.end()) all.push_back(sink);
      }
    }
    return all;
  }
};

/// For every output of every node, a flag.
using Flags = std::vector<std::vector<bool>>;

inline Flags flags_for(Graph const& graph) {
  Flags flags;
  for (auto const& node : graph.nodes) flags.emplace_back(node.outputs.size(), false);
  return flags;
}

/// Whether the gradient of an output flows into an input.
inline bool leads(Node const& node, int output, int input) {
  if (node.operation == &operations::detached) return false;
  if (node.outputs[output].layout == Layout::integer) return false;
  return node.operation != &operations::pair || output == input;
}

/// Which values require gradients.
inline Flags require_grad(Graph const& graph) {
  auto flags = flags_for(graph);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    auto const& node = graph.nodes[i];
    if (node.is_leaf()) {
      flags[i][0] = node.numbers[3] != 0;
      continue;
    }
    for (int output = 0; output < int(node.outputs.size()); ++output) {
      for (int input = 0; input < int(node.inputs.size()); ++input) {
        auto const from = node.inputs[input];
        if (leads(node, output, input) && flags[from.node][from.output]) flags[i][output] = true;
      }
    }
  }
  return flags;
}

/// Which values get a gradient when `sinks` do.
inline Flags reached(Graph const& graph, Flags const& require_grad,
                     std::vector<Value> const& sinks) {
  auto flags = flags_for(graph);
  auto const reach = [&](Value v) {
    if (require_grad[v.node][v.output]) flags[v.node][v.output] = true;
  };
  for (auto const& sink : sinks) reach(sink);
  for (int i = int(graph.nodes.size()) - 1; i >= 0; --i) {
    auto const& node = graph.nodes[i];
    for (int output = 0; output < int(node.outputs.size()); ++output) {
      if (!flags[i][output]) continue;
      for (int input = 0; input < int(node.inputs.size()); ++input) {
        if (leads(node, output, input)) reach(node.inputs[input]);
      }
    }
  }
  return flags;
}

inline bool any(std::vector<bool> const& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

/// Whether a value that needs no gradient comes in one message with one that does, which then gets
/// none either.
inline bool comes_along(Graph const& graph, Flags const& require_grad, Value v) {
  return graph[v].keep != Keep::sent && any(require_grad[v.node]) &&
         !require_grad[v.node][v.output];
}

/// Whether every message with a tensor that requires gradients is on a way from `sinks`, as FAST
/// demands.
inline bool all_take_part(Graph const& graph, Flags const& require_grad,
                          std::vector<Value> const& sinks) {
  for (auto const& sink : graph.sinks()) {  // each is fetched
    bool const taken = std::find(sinks.begin(), sinks.end(), sink) != sinks.end();
    if (!taken && require_grad[sink.node][sink.output]) return false;
    if (comes_along(graph, require_grad, sink)) return false;
  }
  auto const flags = reached(graph, require_grad, sinks);
  for (std::size_t i = graph.leaves(); i < graph.nodes.size(); ++i) {
    auto const& node = graph.nodes[i];
    for (int input = 0; input < int(node.inputs.size()); ++input) {
      auto const from = node.inputs[input];
      if (comes_along(graph, require_grad, from)) return false;
      if (!require_grad[from.node][from.output]) continue;
      bool used = false;
      for (int output = 0; output < int(node.outputs.size()); ++output) {
        used = used || (flags[i][output] && leads(node, output, input));
      }
      if (!used) return false;
    }
    if (any(require_grad[i]) && !any(flags[i])) return false;
  }
  return true;
}

inline bool allows_fast(Graph const& graph) {
  auto const flags = require_grad(graph);
  return graph.second == Second::none &&
         std::all_of(graph.passes.begin(), graph.passes.end(),
                     [&](Pass const& pass) { return all_take_part(graph, flags, pass.sinks); });
}

}  // namespace random_graphs
