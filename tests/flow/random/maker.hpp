#pragma once
// Makes a random graph of a seed, the same on every machine.

#include <functional>
#include <random>
#include <utility>

#include "graph.hpp"

namespace random_graphs {

class Maker {
 public:
  static constexpr int workers = 6;

  explicit Maker(std::uint64_t seed) : random_(seed) { graph_.seed = seed; }

  Graph make() {
    choose_workers();
    bool const twice = chance(3);
    choose_operations(twice);
    for (int i = 0, leaves = 2 + below(5); i < leaves; ++i) add_leaf(i, twice);
    for (int i = 0, count = 3 + below(18); i < count; ++i) add_operation();
    // The first leaf wants a gradient and gets one, so that there is something to compute.
    sure_sink_ = add(&operations::tanh, {}, {{0, 0}}, {graph_.nodes[0].outputs[0]});
    densify_unused();
    add_passes();
    if (twice) {
      graph_.passes.resize(1);
      graph_.second = chance(2) ? Second::by_grad : Second::by_backward;
    }
    return std::move(graph_);
  }

 private:
  using Fits = std::function<bool(Value)>;

  int below(int n) { return int(random_() % std::uint64_t(n)); }
  /// True once in `n` times.
  bool chance(int n) { return below(n) == 0; }
  int any_worker() { return workers_[below(int(workers_.size()))]; }
  Shape shape_of(Value v) const { return graph_[v].outputs[v.output]; }

  void choose_workers() {
    for (int i = 0; i < workers; ++i) workers_.push_back(i);
    for (int i = workers - 1; i > 0; --i) std::swap(workers_[i], workers_[below(i + 1)]);
    workers_.resize(1 + below(workers));
    graph_.initiator = any_worker();
  }
  void choose_operations(bool twice) {
    for (auto const* operation : all_operations) {
      if (twice && operation->smooth != Smooth::twice) continue;
      if (operation == &operations::detached && !chance(3)) continue;  // FAST can do without
      if (operation == &operations::pair && !chance(2)) continue;
      if (!operation->name.ends_with("leaf")) operations_.push_back(operation);
    }
  }

  Value add(Operation const* operation, Numbers numbers, std::vector<Value> inputs,
            std::vector<Shape> outputs) {
    Node node{operation,          std::move(numbers), std::move(inputs),
              std::move(outputs), any_worker(),       {}};
    for (int relays = chance(5) ? 1 + below(2) : 0; relays > 0; --relays) {
      node.relays.push_back(any_worker());
    }
    constexpr Keep keeps[] = {Keep::sent, Keep::at_worker, Keep::at_relay};
    node.keep = keeps[below(node.relays.empty() ? 2 : 3)];
    graph_.nodes.push_back(std::move(node));
    return {int(graph_.nodes.size()) - 1, 0};
  }
  void add_leaf(int number, bool twice) {
    Shape shape{1 + below(4), 1 + below(4)};
    bool const first = number == 0;
    auto const* operation = chance(5) && !first ? &operations::hooked_leaf : &operations::leaf;
    if (!twice && !first && chance(6)) {
      operation = &operations::sparse_leaf;
      shape.layout = Layout::sparse;
    }
    bool const constant = operation != &operations::hooked_leaf && !first && chance(5);
    add(operation, {number, shape.rows, shape.columns, !constant}, {}, {shape});
    auto& leaf = graph_.nodes.back();
    leaf.relays.clear();
    bool const here = first ? !chance(3) : leaf.worker == graph_.initiator && chance(2);
    if (here) leaf.worker = graph_.initiator;
    leaf.keep = here ? Keep::sent : Keep::at_worker;
  }

  /// Prefers what was made lately, so that graphs get deep.
  Value any_value() {
    int const count = int(graph_.nodes.size());
    int const node = chance(2) ? below(count) : count - 1 - below(std::min(count, 4));
    return {node, below(int(graph_.nodes[node].outputs.size()))};
  }
  /// A value that `fits`; the last resort is `otherwise`, which may be used twice then.
  Value any_value(Fits const& fits, Value otherwise) {
    for (int i = 0; i < 12; ++i) {
      if (auto const value = any_value(); fits(value)) return value;
    }
    return otherwise;
  }
  Value any_like(Value x) {
    return any_value([&](Value v) { return shape_of(v) == shape_of(x); }, x);
  }

  void add_operation() {
    auto const x = any_value([&](Value v) { return shape_of(v).layout != Layout::integer; }, {});
    if (shape_of(x).layout == Layout::sparse) return add_sparse_operation(x);
    auto const* operation = operations_[below(int(operations_.size()))];
    if (!add_special(operation, x)) add_elementwise(operation, x);
  }
  void add_sparse_operation(Value x) {
    auto shape = shape_of(x);
    if (chance(4)) return void(add(&operations::scale_sparse, {}, {x}, {shape}));
    if (chance(3)) return void(add(&operations::add_sparse, {}, {x, any_like(x)}, {shape}));
    shape.layout = Layout::dense;
    add(&operations::densify, {}, {x}, {shape});
  }
  /// Operations whose results have the shape of their operands.
  void add_elementwise(Operation const* operation, Value x) {
    using namespace operations;
    auto const shape = shape_of(x);
    for (auto const* unary :
         {&tanh, &sigmoid, &sin, &scale, &detached, &hook_result, &hook_operand}) {
      if (operation == unary) return void(add(operation, {}, {x}, {shape}));
    }
    for (auto const* binary :
         {&operations::add, &sub, &mul, &repeated, &in_place, &in_place_on_operand}) {
      if (operation == binary) return void(add(operation, {}, {x, any_like(x)}, {shape}));
    }
    if (operation == &mix) return void(add(operation, {}, {x, any_like(x)}, {shape, shape}));
    add(&sin, {}, {x}, {shape});
  }
  /// @return whether it was one of the others, and possible.
  bool add_special(Operation const* operation, Value x);

  /// Sparse results nobody uses become dense, so that they can be summed.
  void densify_unused();
  std::vector<Value> unused() const;
  void add_passes();

  std::mt19937_64 random_;
  std::vector<int> workers_;
  std::vector<Operation const*> operations_;
  Value sure_sink_;
  Graph graph_;
};

inline bool Maker::add_special(Operation const* operation, Value x) {
  using namespace operations;
  auto const shape = shape_of(x);
  auto const dim = below(2);
  auto const length = dim == 0 ? shape.rows : shape.columns;
  auto const resized = [&](std::int64_t n) {
    return dim == 0 ? Shape{n, shape.columns} : Shape{shape.rows, n};
  };
  auto const start = below(int(length)), kept = 1 + below(int(length - start));
  Shape const turned{shape.columns, shape.rows};

  if (operation == &turn) return add(operation, {}, {x}, {turned}), true;
  if (operation == &in_place_on_base) return add(operation, {}, {x}, {turned, shape}), true;
  if (operation == &sum || operation == &mean) {
    return add(operation, {dim}, {x}, {resized(1)}), true;
  }
  if (operation == &slice) return add(operation, {dim, start, kept}, {x}, {resized(kept)}), true;
  if (operation == &in_place_on_view) {
    return add(operation, {dim, start, kept}, {x, any_like(x)}, {shape}), true;
  }
  if (operation == &in_place_on_view_of_operand) {
    return add(operation, {dim, start, kept}, {x}, {shape}), true;
  }
  if (operation == &sorted) {
    auto const indices = Shape{shape.rows, shape.columns, Layout::integer};
    return add(operation, {dim}, {x}, {shape, indices}), true;
  }
  if (operation == &pair) {
    auto const y = any_value([&](Value v) { return shape_of(v).layout == Layout::dense; }, x);
    return add(operation, {}, {x, y}, {shape, shape_of(y)}), true;
  }
  if (operation == &matmul) {
    auto const y = any_value(
        [&](Value v) {
          return shape_of(v).layout == Layout::dense && shape_of(v).rows == shape.columns;
        },
        x);
    if (shape_of(y).rows != shape.columns) return false;
    return add(operation, {}, {x, y}, {{shape.rows, shape_of(y).columns}}), true;
  }
  if (operation == &stack && shape.rows <= 8) {
    std::vector<Value> inputs{x};
    for (int i = below(3); i >= 0; --i) inputs.push_back(any_like(x));
    auto const rows = shape.rows * std::int64_t(inputs.size());
    return add(operation, {}, std::move(inputs), {{rows, shape.columns}}), true;
  }
  if (operation == &split) {
    auto const size = 1 + below(int(length));
    std::vector<Shape> outputs;
    for (std::int64_t at = 0; at < length; at += size) {
      outputs.push_back(resized(std::min<std::int64_t>(size, length - at)));
    }
    return add(operation, {dim, size}, {x}, std::move(outputs)), true;
  }
  if (operation == &lookup) {
    auto const is_table = [&](Value v) {
      return graph_[v].is_leaf() && shape_of(v).layout == Layout::dense;
    };
    auto const table = any_value(is_table, {});
    Numbers rows;
    for (int i = below(4); i >= 0; --i) rows.push_back(below(int(shape_of(table).rows)));
    auto const count = std::int64_t(rows.size());
    return add(operation, std::move(rows), {table}, {{count, shape_of(table).columns}}), true;
  }
  return false;
}

inline std::vector<Value> Maker::unused() const {
  auto used = flags_for(graph_);
  for (auto const& node : graph_.nodes) {
    for (auto const& input : node.inputs) used[input.node][input.output] = true;
  }
  std::vector<Value> values;
  for (int node = graph_.leaves(); node < int(used.size()); ++node) {
    for (int output = 0; output < int(used[node].size()); ++output) {
      if (!used[node][output]) values.push_back({node, output});
    }
  }
  return values;
}

inline void Maker::densify_unused() {
  for (auto const& value : unused()) {
    auto shape = shape_of(value);
    if (shape.layout != Layout::sparse) continue;
    shape.layout = Layout::dense;
    add(&operations::densify, {}, {value}, {shape});
  }
}

/// In most graphs what nobody uses goes into the loss, so that FAST can be used. In the others some
/// of it does: then there are calls for nothing, and ways that lead nowhere.
inline void Maker::add_passes() {
  auto const candidates = unused();
  auto const flags = require_grad(graph_);
  bool const wasteful = chance(3), different = chance(2);
  std::vector<Value> chosen;
  auto const choose = [&] {
    chosen.clear();
    if (chance(8)) chosen.push_back({0, 0});  // a leaf as a root
    for (auto const& value : candidates) {
      if (shape_of(value).layout != Layout::dense) continue;
      if (value == sure_sink_ || !wasteful || chance(3)) chosen.push_back(value);
    }
  };
  choose();
  for (int passes = chance(4) ? 2 : 1; passes > 0; --passes) {
    Pass pass{chosen, !chance(3)};
    std::erase_if(pass.sinks, [&](Value v) { return !pass.summed && !flags[v.node][v.output]; });
    graph_.passes.push_back(std::move(pass));
    if (different) choose();
  }
}

}  // namespace random_graphs
