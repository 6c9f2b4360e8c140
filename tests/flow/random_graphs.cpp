// Whatever the graph and however it is cut over workers, the gradients are those of the uncut one.
//
// DISTGRAD_SEEDS=5000 runs more graphs, DISTGRAD_FIRST_SEED=17 starts at another one.

#include "rig.hpp"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>

#include <array>
#include <cstdlib>
#include <random>
#include <sstream>

using namespace distgrad;

namespace {

using Tensors = std::vector<at::Tensor>;
using Numbers = std::vector<std::int64_t>;

enum class Kind { leaf, tanh, sigmoid, sin, scale, turn, add, sub, mul, matmul, sum, mean, slice,
                  stack, split };
constexpr std::array kind_names{"leaf", "tanh", "sigmoid", "sin",  "scale", "turn",  "add",  "sub",
                                "mul",  "matmul", "sum",   "mean", "slice", "stack", "split"};

struct Shape {
  std::int64_t rows = 0, columns = 0;
  bool operator==(Shape const&) const = default;
};
/// One output of a node.
struct Value {
  int node = 0, output = 0;
};
/// An operation, where it runs, and how its result reaches those who use it.
struct Node {
  Kind kind{};
  Numbers numbers;
  std::vector<Value> inputs;
  std::vector<Shape> outputs;
  int worker = 0;
  /// Another worker that is asked to have the operation run; none if negative.
  int relay = -1;
  /// The result stays where it was made and is fetched by each user; else the initiator gets it
  /// and sends it to each user.
  bool stays = false;
  bool requires_grad = true;
};
struct Graph {
  std::uint64_t seed = 0;
  int initiator = 0;
  int passes = 1;
  std::vector<Node> nodes;
  std::vector<Value> sinks;
};

// ---- One operation. All values stay within [-1, 1], so that tolerances mean something.

Tensors apply(Kind kind, Numbers const& n, Tensors const& x) {
  switch (kind) {
    case Kind::leaf: break;
    case Kind::tanh: return {x[0].tanh()};
    case Kind::sigmoid: return {x[0].sigmoid()};
    case Kind::sin: return {x[0].sin()};
    case Kind::scale: return {x[0].mul(-0.75)};
    case Kind::turn: return {x[0].t()};
    case Kind::add: return {x[0].add(x[1]).mul(0.5)};
    case Kind::sub: return {x[0].sub(x[1]).mul(0.5)};
    case Kind::mul: return {x[0].mul(x[1])};
    case Kind::matmul: return {x[0].mm(x[1]).tanh()};
    case Kind::sum: return {x[0].sum(n[0], true).tanh()};
    case Kind::mean: return {x[0].mean(n[0], true)};
    case Kind::slice: return {x[0].narrow(n[0], n[1], n[2])};
    case Kind::stack: return {at::stack(x).flatten(0, 1)};
    case Kind::split: return x[0].split(n[1], n[0]);
  }
  throw std::logic_error("not an operation");
}

at::Tensor leaf_of(std::int64_t number, Numbers const& size, bool requires_grad) {
  return at::arange(size[0] * size[1], at::kDouble)
      .add(double(number))
      .sin()
      .reshape({size[0], size[1]})
      .set_requires_grad(requires_grad);
}

// ---- Making graphs.

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) { graph_.seed = seed; }

  Graph make() {
    std::array<int, 4> order{0, 1, 2, 3};
    std::shuffle(order.begin(), order.end(), random_);
    workers_.assign(order.begin(), order.begin() + 1 + below(4));
    graph_.initiator = any_worker();
    graph_.passes = below(4) == 0 ? 2 : 1;
    for (int i = 0, leaves = 2 + below(5); i < leaves; ++i) add_leaf();
    for (int i = 0, operations = 3 + below(18); i < operations; ++i) add_operation();
    // The first leaf wants a gradient and gets one, so that there is something to compute.
    add(Kind::tanh, {}, {{0, 0}}, {graph_.nodes[0].outputs[0]});
    find_sinks();
    return std::move(graph_);
  }

 private:
  int below(int n) { return int(random_() % std::uint64_t(n)); }
  int any_worker() { return workers_[below(int(workers_.size()))]; }
  Shape shape_of(Value v) const { return graph_.nodes[v.node].outputs[v.output]; }

  void add(Kind kind, Numbers numbers, std::vector<Value> inputs, std::vector<Shape> outputs) {
    Node node{kind, std::move(numbers), std::move(inputs), std::move(outputs), any_worker()};
    if (below(5) == 0) node.relay = any_worker();
    node.stays = below(2) == 0;
    graph_.nodes.push_back(std::move(node));
  }
  void add_leaf() {
    Shape const shape{1 + below(4), 1 + below(4)};
    add(Kind::leaf, {shape.rows, shape.columns}, {}, {shape});
    auto& leaf = graph_.nodes.back();
    leaf.requires_grad = graph_.nodes.size() == 1 || below(5) != 0;
    leaf.stays = leaf.worker != graph_.initiator || below(2) == 0;
  }
  /// Prefers what was made lately, so that graphs get deep.
  Value any_value() {
    int const count = int(graph_.nodes.size());
    int const node = below(2) == 0 ? below(count) : count - 1 - below(std::min(count, 4));
    return {node, below(int(graph_.nodes[node].outputs.size()))};
  }
  /// A value that `fits`; the last resort is `otherwise`, which may be used twice then.
  template <class Fits>
  Value any_value(Fits fits, Value otherwise) {
    for (int i = 0; i < 12; ++i) {
      if (auto const value = any_value(); fits(shape_of(value))) return value;
    }
    return otherwise;
  }

  void add_operation() {
    auto const x = any_value();
    auto const shape = shape_of(x);
    auto const same = [shape](Shape s) { return s == shape; };
    auto const kind = Kind(1 + below(int(kind_names.size()) - 1));
    auto const dim = below(2);
    auto const length = dim == 0 ? shape.rows : shape.columns;
    auto const resized = [&](std::int64_t n) {
      return dim == 0 ? Shape{n, shape.columns} : Shape{shape.rows, n};
    };
    switch (kind) {
      case Kind::turn: return add(kind, {}, {x}, {{shape.columns, shape.rows}});
      case Kind::add:
      case Kind::sub:
      case Kind::mul: return add(kind, {}, {x, any_value(same, x)}, {shape});
      case Kind::matmul: {
        auto const y = any_value([&](Shape s) { return s.rows == shape.columns; }, x);
        if (shape_of(y).rows != shape.columns) return add(Kind::sin, {}, {x}, {shape});
        return add(kind, {}, {x, y}, {{shape.rows, shape_of(y).columns}});
      }
      case Kind::sum:
      case Kind::mean: return add(kind, {dim}, {x}, {resized(1)});
      case Kind::slice: {
        auto const start = below(int(length));
        auto const kept = 1 + below(int(length - start));
        return add(kind, {dim, start, kept}, {x}, {resized(kept)});
      }
      case Kind::stack: {
        if (shape.rows > 8) return add(Kind::scale, {}, {x}, {shape});
        std::vector<Value> inputs{x};
        for (int i = below(3); i >= 0; --i) inputs.push_back(any_value(same, x));
        auto const rows = shape.rows * std::int64_t(inputs.size());
        return add(kind, {}, std::move(inputs), {{rows, shape.columns}});
      }
      case Kind::split: {
        auto const size = 1 + below(int(length));
        std::vector<Shape> outputs;
        for (std::int64_t at = 0; at < length; at += size) {
          outputs.push_back(resized(std::min<std::int64_t>(size, length - at)));
        }
        return add(kind, {dim, size}, {x}, std::move(outputs));
      }
      default: return add(kind, {}, {x}, {shape});
    }
  }
  /// What nobody uses goes into the loss: then every message of the forward pass takes part in
  /// the backward pass, as FAST demands. Leaves nobody uses stay out.
  void find_sinks() {
    std::vector<std::vector<bool>> used;
    for (auto const& node : graph_.nodes) {
      used.emplace_back(node.outputs.size(), node.kind == Kind::leaf);
      for (auto const& input : node.inputs) used[input.node][input.output] = true;
    }
    for (int node = 0; node < int(used.size()); ++node) {
      for (int output = 0; output < int(used[node].size()); ++output) {
        if (!used[node][output]) graph_.sinks.push_back({node, output});
      }
    }
  }

  std::mt19937_64 random_;
  std::vector<int> workers_;
  Graph graph_;
};

std::string text_of(Graph const& graph) {
  std::ostringstream out;
  out << "DISTGRAD_FIRST_SEED=" << graph.seed << ", " << graph.passes
      << " pass(es) from worker" << graph.initiator << "\n";
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    auto const& node = graph.nodes[i];
    out << "  %" << i << " = " << kind_names[std::size_t(node.kind)] << "(";
    for (auto const& input : node.inputs) out << " %" << input.node << "." << input.output;
    for (auto number : node.numbers) out << " " << number;
    out << " ) on worker" << node.worker;
    if (node.relay >= 0) out << " via worker" << node.relay;
    out << (node.stays ? ", stays" : ", sent") << (node.requires_grad ? "" : ", constant") << "\n";
  }
  out << "  loss = sum of";
  for (auto const& sink : graph.sinks) out << " %" << sink.node << "." << sink.output;
  return out.str();
}

// ---- Running them on one process, for reference.

struct Outcome {
  at::Tensor loss;
  Tensors gradients;  // of the leaves, in order; undefined where there is none
};

Outcome run_uncut(Graph const& graph) {
  std::vector<Tensors> values;
  for (auto const& node : graph.nodes) {
    if (node.kind == Kind::leaf) {
      values.push_back({leaf_of(std::int64_t(values.size()), node.numbers, node.requires_grad)});
      continue;
    }
    Tensors inputs;
    for (auto const& input : node.inputs) inputs.push_back(values[input.node][input.output]);
    values.push_back(apply(node.kind, node.numbers, inputs));
  }
  Outcome outcome;
  for (auto const& sink : graph.sinks) {
    auto const part = values[sink.node][sink.output].sum();
    outcome.loss = outcome.loss.defined() ? outcome.loss.add(part) : part;
  }
  for (int pass = 1; pass <= graph.passes; ++pass) {
    outcome.loss.backward({}, pass < graph.passes);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (graph.nodes[i].kind == Kind::leaf) outcome.gradients.push_back(values[i][0].grad());
  }
  return outcome;
}

// ---- Running them on several workers.

struct Operand {
  at::Tensor tensor;
  std::optional<RRef<Tensors>> reference;
  int output = 0;
};
struct Task {
  int kind = 0;
  Numbers numbers;
  int worker = 0;
};
Tensors run_task(Task const& task, std::vector<Operand> const& operands) {
  Tensors inputs;
  for (auto const& operand : operands) {
    inputs.push_back(operand.reference ? operand.reference->to_here()[operand.output]
                                       : operand.tensor);
  }
  return apply(Kind(task.kind), task.numbers, inputs);
}
Tensors relay_task(Task const& task, std::vector<Operand> const& operands) {
  return this_worker().rpc_sync<run_task>(task.worker, task, operands);
}
RRef<Tensors> relay_task_that_stays(Task const& task, std::vector<Operand> const& operands) {
  return this_worker().remote<run_task>(task.worker, task, operands);
}
Tensors make_leaf(std::int64_t number, Numbers const& size, bool requires_grad) {
  return {leaf_of(number, size, requires_grad)};
}
at::Tensor gradient_of_leaf(RRef<Tensors> const& leaf) {
  auto& self = this_worker();
  return self.context_part(self.current_context())->gradient(leaf.local_value()[0]);
}

/// A node's result, as the initiator has it.
struct Held {
  Tensors tensors;
  RRef<Tensors> reference;
};

Held run_node(Worker& self, Node const& node, std::vector<Operand> const& operands) {
  Task const task{int(node.kind), node.numbers, node.worker};
  bool const relayed = node.relay >= 0;
  if (!node.stays) {
    return {relayed ? self.rpc_sync<relay_task>(node.relay, task, operands)
                    : self.rpc_sync<run_task>(node.worker, task, operands), {}};
  }
  if (!relayed) return {{}, self.remote<run_task>(node.worker, task, operands)};
  // A relay either passes the result on to itself, or leaves it where it was made.
  if (node.inputs.size() % 2 == 0) return {{}, self.remote<relay_task>(node.relay, task, operands)};
  return {{}, self.rpc_sync<relay_task_that_stays>(node.relay, task, operands)};
}

Outcome run_cut(Worker& self, Graph const& graph) {
  std::vector<Held> values;
  for (auto const& node : graph.nodes) {
    if (node.kind != Kind::leaf) break;
    auto const number = std::int64_t(values.size());
    values.push_back(node.stays ? Held{{}, self.remote<make_leaf>(node.worker, number,
                                                                  node.numbers, node.requires_grad)}
                                : Held{make_leaf(number, node.numbers, node.requires_grad), {}});
  }
  auto const leaves = values.size();
  auto ctx = self.context();
  for (auto i = leaves; i < graph.nodes.size(); ++i) {
    std::vector<Operand> operands;
    for (auto const& input : graph.nodes[i].inputs) {
      auto const& from = values[input.node];
      operands.push_back(from.reference.is_valid()
                             ? Operand{{}, from.reference, input.output}
                             : Operand{from.tensors[input.output], {}, 0});
    }
    values.push_back(run_node(self, graph.nodes[i], operands));
  }
  Outcome outcome;
  for (auto const& sink : graph.sinks) {
    auto const& from = values[sink.node];
    auto const value = from.reference.is_valid() ? from.reference.to_here()[sink.output]
                                                 : from.tensors[sink.output];
    outcome.loss = outcome.loss.defined() ? outcome.loss.add(value.sum()) : value.sum();
  }
  for (int pass = 1; pass <= graph.passes; ++pass) {
    ctx.backward({outcome.loss}, {.retain_graph = pass < graph.passes,
                                  .gradients = {},
                                  .timeout = std::chrono::seconds(30)});
  }
  for (std::size_t i = 0; i < leaves; ++i) {
    auto const& leaf = values[i];
    outcome.gradients.push_back(
        leaf.reference.is_valid()
            ? self.rpc_sync<gradient_of_leaf>(graph.nodes[i].worker, leaf.reference)
            : ctx.gradient(leaf.tensors[0]));
  }
  return outcome;
}

bool are_equal(at::Tensor const& a, at::Tensor const& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         at::allclose(a.detach(), b.detach(), 1e-12, 1e-12);
}

/// @return what is wrong; empty if nothing is.
std::string compare(Graph const& graph, std::vector<Worker*> const& group) {
  auto const expected = run_uncut(graph);
  try {
    auto const found = run_cut(*group[graph.initiator], graph);
    if (!are_equal(found.loss, expected.loss)) return "the loss differs";
    for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
      if (!are_equal(found.gradients[i], expected.gradients[i])) {
        return "the gradient of leaf %" + std::to_string(i) + " differs";
      }
    }
  } catch (std::exception const& error) {
    return error.what();
  }
  return {};
}

std::uint64_t number_from_environment(char const* name, std::uint64_t otherwise) {
  auto const* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

void check_graphs(std::vector<Worker*> const& group, std::uint64_t count) {
  auto const first = number_from_environment("DISTGRAD_FIRST_SEED", 1);
  int failures = 0;
  for (auto seed = first; seed < first + count && failures < 3; ++seed) {
    auto const graph = Maker(seed).make();
    auto const wrong = compare(graph, group);
    if (!wrong.empty()) ++failures;
    CHECK_MESSAGE(wrong.empty(), wrong, "\n", text_of(graph));
  }
  for (auto* worker : group) {
    CHECK(rig::eventually([&] {
      auto const info = worker->debug_info();
      return info.autograd_contexts + info.backward_passes + info.owned_rrefs + info.forks == 0;
    }));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("random graphs cut over random workers have the gradients of the uncut graph",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<4, Engine> cluster;
  std::vector<Worker*> group;
  for (auto& engine : cluster) group.push_back(engine.get());
  bool const over_memory = std::is_same_v<Engine, LoopbackEngine>;
  check_graphs(group, number_from_environment("DISTGRAD_SEEDS", over_memory ? 200 : 25));
}
