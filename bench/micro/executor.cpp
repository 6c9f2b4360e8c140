// What does walking the graph cost above the nodes themselves? Chains of 10,000 nodes, each run by
// our executor and by libtorch's engine, alternately in one process; best of many.
//   bench_micro_executor [repetitions]
// One JSON line per chain: nanoseconds per node of each, and their ratio.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include <malloc.h>

#include <distgrad/engine/carrier.hpp>
#include <distgrad/engine/executor.hpp>

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int chain_length = 10'000;

// A page that was given back to the system costs more to touch again than a node to run: keep all.
void keep_memory() {
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
}

template <class F>
double nanoseconds_per_node(F&& run) {
  auto const begin = Clock::now();
  run();
  std::chrono::duration<double, std::nano> const elapsed = Clock::now() - begin;
  return elapsed.count() / chain_length;
}

void run_ours(at::Tensor const& root) {
  distgrad::Executor executor({.retain_graph = true});
  executor.add_root(root);
  distgrad::run_in_carrier(true, false, [&] { executor.run_ready(); });
  if (!executor.is_complete()) std::abort();
}

void run_libtorch(at::Tensor const& root) { torch::autograd::backward({root}, {}, true); }

template <class Step>
void measure(char const* name, int repetitions, Step&& step) {
  at::Tensor const leaf = at::ones({1}).requires_grad_();
  at::Tensor root = leaf;
  for (int i = 0; i < chain_length; ++i) root = step(root, leaf);
  double ours = std::numeric_limits<double>::max(), theirs = ours;
  for (int i = 0; i < repetitions; ++i) {
    ours = std::min(ours, nanoseconds_per_node([&] { run_ours(root); }));
    theirs = std::min(theirs, nanoseconds_per_node([&] { run_libtorch(root); }));
  }
  std::printf(
      "{\"bench\":\"executor\",\"chain\":\"%s\",\"nodes\":%d,\"distgrad_ns_per_node\":%.0f,"
      "\"libtorch_ns_per_node\":%.0f,\"ratio\":%.3f}\n",
      name, chain_length, ours, theirs, ours / theirs);
}

}  // namespace

int main(int argc, char** argv) {
  keep_memory();
  int const repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 60;
  measure("y + 1", repetitions, [](at::Tensor const& y, at::Tensor const&) { return y.add(1); });
  measure("y + leaf", repetitions,
          [](at::Tensor const& y, at::Tensor const& leaf) { return y.add(leaf); });
  measure("sin(y)", repetitions, [](at::Tensor const& y, at::Tensor const&) { return y.sin(); });
}
