// What does walking the graph cost above the nodes themselves? Graphs of 10,000 nodes, long ones
// and wide ones, each run by our executor and by libtorch's engine, alternately in one process;
// best of many.
//
//   executor [--quick]
//
// One JSON line per graph on stdout: nanoseconds per node of each, and their ratio. A line for
// people, and at the end the targets, on stderr.
#include <distgrad/engine/carrier.hpp>
#include <distgrad/engine/executor.hpp>

#include "../support/report.hpp"
#include "../support/timing.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

namespace {

constexpr int nodes = 10'000;

template <class F>
double nanoseconds_per_node(F&& run) {
  auto const begin = bench::Clock::now();
  run();
  return bench::microseconds_since(begin) * 1e3 / nodes;
}

distgrad::GradientMap run_ours(at::Tensor const& root) {
  distgrad::Executor executor({.retain_graph = true});
  executor.add_root(root);
  distgrad::run_in_carrier(true, false, [&] { executor.run_ready(); });
  bench::require(executor.is_complete(), "the pass");
  return executor.take_gradients();
}

void run_libtorch(at::Tensor const& root) { torch::autograd::backward({root}, {}, true); }

struct Graph {
  char const* shape;  // "chain" or "wide"
  char const* what;   // its nodes
  double target;      // of the ratio; 0: none
  at::Tensor (*root)(at::Tensor const& leaf);
};

template <class Step>
at::Tensor chain(at::Tensor y, int length, Step step) {
  for (int i = 0; i < length; ++i) y = step(y);
  return y;
}

/// `branches` chains from the leaf, side by side, which one node joins.
template <class Step>
at::Tensor wide(at::Tensor const& leaf, int branches, Step step) {
  std::vector<at::Tensor> ends;
  for (int i = 0; i < branches; ++i) ends.push_back(chain(leaf, nodes / branches, step));
  return at::cat(ends).sum();
}

at::Tensor plus_one(at::Tensor const& y) { return y.add(1); }
at::Tensor sine(at::Tensor const& y) { return y.sin(); }

constexpr double chain_target = 0.6, wide_target = 1.0;
constexpr Graph graphs[] = {
    {"chain", "y + 1", chain_target,
     [](at::Tensor const& leaf) { return chain(leaf, nodes, plus_one); }},
    {"chain", "y + leaf", chain_target,
     [](at::Tensor const& leaf) {
       return chain(leaf, nodes, [&](at::Tensor const& y) { return y.add(leaf); });
     }},
    {"chain", "sin(y)", 0, [](at::Tensor const& leaf) { return chain(leaf, nodes, sine); }},
    {"wide", "10,000 branches of y + 1", wide_target,
     [](at::Tensor const& leaf) { return wide(leaf, nodes, plus_one); }},
    {"wide", "100 branches of 100 y + 1", wide_target,
     [](at::Tensor const& leaf) { return wide(leaf, 100, plus_one); }},
    {"wide", "100 branches of 100 sin(y)", wide_target,
     [](at::Tensor const& leaf) { return wide(leaf, 100, sine); }},
};

/// Both engines agree to the last bit.
void require_equal_gradients(at::Tensor const& leaf, at::Tensor const& root) {
  run_libtorch(root);
  auto const ours = run_ours(root).find(leaf);
  bench::require(ours.defined() && ours.equal(leaf.grad()), "gradient");
}

void measure(Graph const& graph, int repetitions, bench::Targets& targets) {
  at::Tensor leaf = at::ones({1}).requires_grad_();
  at::Tensor const root = graph.root(leaf);
  require_equal_gradients(leaf, root);
  double ours = std::numeric_limits<double>::max(), theirs = ours;
  for (int i = 0; i < repetitions; ++i) {
    ours = std::min(ours, nanoseconds_per_node([&] { run_ours(root); }));
    theirs = std::min(theirs, nanoseconds_per_node([&] { run_libtorch(root); }));
  }
  double const ratio = ours / theirs;
  bench::JsonLine json("executor");
  json.add("shape", graph.shape).add("graph", graph.what).add("nodes", nodes);
  json.add("distgrad_ns_per_node", ours).add("libtorch_ns_per_node", theirs).add("ratio", ratio);
  json.print();
  std::string human = "executor, " + std::string(graph.shape) + ", " + graph.what + ":";
  std::string const label = human.substr(0, human.size() - 1) + ", distgrad / libtorch";
  human += "  distgrad " + bench::number(ours) + " ns/node  libtorch " + bench::number(theirs) +
           " ns/node  " + bench::number(ratio) + "x";
  if (graph.target > 0) human += targets.check(label, ratio, graph.target);
  std::fprintf(stderr, "%s\n", human.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  bool const quick = argc == 2 && std::string(argv[1]) == "--quick";
  if (argc > 1 && !quick) {
    std::fprintf(stderr, "usage: %s [--quick]\n", argv[0]);
    return 2;
  }
  bench::keep_freed_memory();
  bench::Targets targets;
  for (auto const& graph : graphs) measure(graph, quick ? 15 : 60, targets);
  targets.print();
}
