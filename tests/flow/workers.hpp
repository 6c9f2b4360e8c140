#pragma once
// What tests of distributed autograd share. A test's body takes `Workers`, whatever their policies,
// so it is compiled once for all engines:
//
//   void body(rig::Workers const& w) { auto ctx = w[0].context(); ... }
//   TEST_CASE_TEMPLATE("...", Engine, DISTGRAD_ENGINES) { rig::on_cluster<Engine>(body); }

#include "rig.hpp"

#include <vector>

#include <torch/csrc/autograd/autograd.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

namespace rig {

class Workers {
 public:
  template <class Cluster>
  explicit Workers(Cluster& cluster) {
    for (auto& engine : cluster) workers_.push_back(engine.get());
  }
  distgrad::Worker& operator[](std::size_t rank) const { return *workers_.at(rank); }
  std::size_t size() const { return workers_.size(); }

  bool all_know(distgrad::ContextId id, std::vector<std::size_t> const& ranks) const {
    bool all = true;
    for (auto rank : ranks) all = all && (*this)[rank].has_context(id);
    return all;
  }
  bool none_knows(distgrad::ContextId id) const {
    bool none = true;
    for (auto* worker : workers_) none = none && !worker->has_context(id);
    return none;
  }
  bool run_no_pass() const {
    bool none = true;
    for (auto* worker : workers_) none = none && worker->debug_info().backward_passes == 0;
    return none;
  }
  /// Whether no worker holds a context or runs a pass.
  bool are_clean() const {
    bool clean = run_no_pass();
    for (auto* worker : workers_) clean = clean && worker->debug_info().autograd_contexts == 0;
    return clean;
  }

 private:
  std::vector<distgrad::Worker*> workers_;
};

/// Runs `body` on four workers; afterwards no context and no pass may be left anywhere.
template <class Engine, class Body>
void on_cluster(Body body, std::chrono::nanoseconds watchdog_interval = std::chrono::seconds(1)) {
  auto options = rig::options<Engine>();
  options.watchdog_interval = watchdog_interval;
  Cluster<4, Engine> cluster(std::move(options));
  Workers const workers(cluster);
  body(workers);
  CHECK(eventually([&] { return workers.are_clean(); }));
  cluster.shutdown();
}

enum class Layout { dense, sparse };

/// Those that tensors at home may have: simulated devices have dense tensors only.
inline std::vector<Layout> layouts() {
  if (home().is_cpu()) return {Layout::dense, Layout::sparse};
  return {Layout::dense};
}

/// A 3 x 3 leaf whose values depend on `seed`.
inline at::Tensor leaf(int seed, Layout layout = Layout::dense) {
  auto values = at::arange(9, at::kFloat).mul(0.25).add(seed).sin().reshape({3, 3});
  if (layout == Layout::sparse) values = values.to_sparse();
  return at_home(values).set_requires_grad(true);
}

/// Bitwise, whatever the layout and the device; a sparse tensor is not its dense twin.
inline bool same(at::Tensor const& a, at::Tensor const& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.layout() != b.layout() || a.scalar_type() != b.scalar_type()) return false;
  return a.detach().cpu().to_dense().equal(b.detach().cpu().to_dense());
}

/// A gradient of ones for a root of any layout.
inline at::Tensor ones_for(at::Tensor const& root) {
  auto const ones = at::ones(root.sizes(), root.options().layout(at::kStrided));
  return root.is_sparse() ? ones.to_sparse() : ones;
}

/// What `torch::autograd` makes of the uncut graph; undefined for leaves it does not reach. Its
/// engine knows the devices there were when it ran first: on later ones ours takes its place, which
/// tests/engine/executor.cpp compares with it.
inline std::vector<at::Tensor> local_gradients(at::Tensor const& root,
                                               std::vector<at::Tensor> const& leaves,
                                               at::Tensor const& gradient = {}) {
  if (!root.device().is_cpu()) {
    distgrad::Executor executor({.retain_graph = true});
    executor.add_root(root, gradient);
    executor.run_ready();
    std::vector<at::Tensor> found;
    for (auto const& leaf : leaves) found.push_back(executor.gradients().find(leaf));
    return found;
  }
  return torch::autograd::grad({root}, leaves, {gradient}, true, false, true);
}

/// Compares the gradients of `leaves` in a context with those of the uncut graph.
inline void check_gradients(distgrad::Context const& ctx, at::Tensor const& local_root,
                            std::vector<at::Tensor> const& leaves,
                            at::Tensor const& gradient = {}) {
  auto const expected = local_gradients(local_root, leaves, gradient);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    CAPTURE(i);
    CHECK(same(ctx.gradient(leaves[i]), expected[i]));
  }
}

/// How a test reaches a function: here, by a call, or by a remote value that is fetched.
enum class Mode { local, call, remote };

template <auto F, class... Args>
auto run(distgrad::Worker const& worker, Mode mode, char const* to, Args const&... args) {
  if (mode == Mode::local) return F(args...);
  if (mode == Mode::call) return worker.rpc_sync<F>(to, args...);
  return worker.remote<F>(to, args...).to_here();
}

}  // namespace rig
