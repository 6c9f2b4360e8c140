// Passes that fail: nobody waits, and a retry is clean.
#include "reports.hpp"
#include "workers.hpp"

#include <atomic>
#include <stdexcept>

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

using namespace distgrad;
using namespace std::chrono_literals;
using rig::leaf;
using rig::mentions;
using rig::report_of;
using rig::same;
using rig::Workers;

namespace {

using torch::autograd::AutogradContext;

at::Tensor passes_add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }
at::Tensor passes_mul(at::Tensor const& x, at::Tensor const& y) { return x.mul(y); }

std::atomic<bool> passes_break{false};

struct BreaksInBackward : torch::autograd::Function<BreaksInBackward> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    if (passes_break) throw std::runtime_error("this gradient is broken");
    return gradients;
  }
};

at::Tensor breaking(at::Tensor const& x) { return BreaksInBackward::apply(x); }
at::Tensor breaking_deeper(at::Tensor const& x, int hops) {
  if (hops == 0) return breaking(x);
  auto& self = this_worker();
  return self.rpc_sync<breaking_deeper>(self.rank() + 1, x, hops - 1).mul(2);
}

// The error of a pass, as its initiator sees it.
void broken_node(Workers const& w, int hops) {
  auto const x = leaf(1);
  auto const broken_on = "worker" + std::to_string(hops + 1);
  passes_break = true;
  {
    auto ctx = w[0].context();
    auto const y = w[0].rpc_sync<breaking_deeper>("worker1", x, hops);
    auto const report = report_of(ctx, y.sum());
    CHECK(report.code == int(errc::pass_failed));
    CHECK(report.worker == broken_on);
    CHECK(report.node.find("BreaksInBackward") != std::string::npos);
    CHECK(report.text.find("this gradient is broken") != std::string::npos);
    CHECK(rig::eventually([&] {
      std::size_t passes = 0;
      for (std::size_t i = 0; i < w.size(); ++i) passes += w[i].debug_info().backward_passes;
      return passes == 0;
    }));
    CHECK_FALSE(ctx.gradient(x).defined());
  }
  passes_break = false;
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<breaking_deeper>("worker1", x, hops).sum()});
  CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(1 << hops)));
}

void broken_here(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto value = breaking(x);
  for (auto to : {"worker1", "worker2", "worker3", "worker1"}) {
    value = w[0].rpc_sync<passes_add>(to, value, x);
  }
  passes_break = true;
  auto const report = report_of(ctx, value.sum(), {.retain_graph = true});
  passes_break = false;
  CHECK(report.worker == "worker0");
  CHECK(report.node.find("BreaksInBackward") != std::string::npos);
  CHECK(report.text.find("this gradient is broken") != std::string::npos);
  CHECK(ctx.gradients().empty());
}

void failures_then_successes(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<breaking>("worker1", x).sum();
  passes_break = true;
  int failures = 0;
  for (int i = 0; i < 50; ++i) {
    failures += report_of(ctx, root, {.retain_graph = true}).worker == "worker1";
  }
  CHECK(failures == 50);
  passes_break = false;
  for (int i = 0; i < 49; ++i) ctx.backward({root}, {.retain_graph = true});
  CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(49)));
}

void graph_used_up(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<passes_mul>("worker1", x, y).sum();
  ctx.backward({root});
  auto const report = report_of(ctx, root);
  CHECK(report.code == int(errc::pass_failed));
  CHECK(report.worker == "worker1");
  CHECK(report.node.find("Mul") != std::string::npos);
  CHECK(same(ctx.gradient(x), y.detach()));
}

}  // namespace

TEST_CASE_TEMPLATE("an error in a remote node reaches the initiator with worker, node and text",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { broken_node(w, 0); });
}
TEST_CASE_TEMPLATE("[DA-50] an error two workers deeper reaches the initiator", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { broken_node(w, 2); });
}
TEST_CASE_TEMPLATE("[DA-40] an error on the initiator after four hops names its node", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(broken_here);
}
TEST_CASE_TEMPLATE("[DA-58] passes succeed on a graph on which fifty failed", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(failures_then_successes);
}
TEST_CASE_TEMPLATE("a second pass over a graph that was not retained fails on its worker", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(graph_used_up);
}

// --- passes that run out of time -----------------------------------------------------------------

namespace {

std::atomic<bool> passes_open{false};

/// Its backward returns when the test opens it.
struct Gated : torch::autograd::Function<Gated> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    rig::eventually([] { return passes_open.load(); });
    return gradients;
  }
};
at::Tensor gated(at::Tensor const& x) { return Gated::apply(x); }

void out_of_time(Workers const& w) {
  auto const x = leaf(1);
  passes_open = false;
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<gated>("worker1", x).sum();
  auto const report = report_of(ctx, root, {.retain_graph = true, .timeout = 50ms});
  passes_open = true;
  CHECK(report.code == int(errc::timeout));
  CHECK(mentions(report.text, "BackwardOptions::timeout"));
  CHECK(mentions(report.text, "worker 'worker0' waited for the gradients"));
  CHECK(mentions(report.text, "worker 'worker1' did not say that it stopped"));
  CHECK_FALSE(ctx.gradient(x).defined());
  ctx.backward({root}, {.timeout = 60s});
  CHECK(same(ctx.gradient(x), at::ones({3, 3})));
}

}  // namespace

TEST_CASE_TEMPLATE("a pass ends at its timeout, and another may follow", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(out_of_time);
}
