// Passes that fail: nobody waits, and a retry is clean.
#include "reports.hpp"
#include "workers.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

namespace pass_failures_tests {

using namespace distgrad;
using namespace std::chrono_literals;
using rig::leaf;
using rig::mentions;
using rig::Report;
using rig::report_of;
using rig::same;
using rig::Workers;

namespace {

using torch::autograd::AutogradContext;

at::Tensor failing_add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }
at::Tensor failing_mul(at::Tensor const& x, at::Tensor const& y) { return x.mul(y); }

std::atomic<bool> failing_break{false};

struct BreaksInBackward : torch::autograd::Function<BreaksInBackward> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    if (failing_break) throw std::runtime_error("this gradient is broken");
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
  failing_break = true;
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
  failing_break = false;
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<breaking_deeper>("worker1", x, hops).sum()});
  CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(1 << hops)));
}

void broken_here(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto value = breaking(x);
  for (auto to : {"worker1", "worker2", "worker3", "worker1"}) {
    value = w[0].rpc_sync<failing_add>(to, value, x);
  }
  failing_break = true;
  auto const report = report_of(ctx, value.sum(), {.retain_graph = true});
  failing_break = false;
  CHECK(report.worker == "worker0");
  CHECK(report.node.find("BreaksInBackward") != std::string::npos);
  CHECK(report.text.find("this gradient is broken") != std::string::npos);
  CHECK(ctx.gradients().empty());
}

void failures_then_successes(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<breaking>("worker1", x).sum();
  failing_break = true;
  int failures = 0;
  for (int i = 0; i < 50; ++i) {
    failures += report_of(ctx, root, {.retain_graph = true}).worker == "worker1";
  }
  CHECK(failures == 50);
  failing_break = false;
  for (int i = 0; i < 49; ++i) ctx.backward({root}, {.retain_graph = true});
  CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(49)));
}

void graph_used_up(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<failing_mul>("worker1", x, y).sum();
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

std::atomic<bool> failing_open{false};

/// Its backward returns when the test opens it.
struct Gated : torch::autograd::Function<Gated> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    rig::eventually([] { return failing_open.load(); });
    return gradients;
  }
};
at::Tensor gated(at::Tensor const& x) { return Gated::apply(x); }

void out_of_time(Workers const& w) {
  auto const x = leaf(1);
  failing_open = false;
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<gated>("worker1", x).sum();
  auto const report = report_of(ctx, root, {.retain_graph = true, .timeout = 50ms});
  failing_open = true;
  CHECK(report.code == int(errc::timeout));
  CHECK(mentions(report.text, "BackwardOptions::timeout"));
  CHECK(mentions(report.text, "worker 'worker0' waited for the gradients"));
  CHECK(mentions(report.text, "worker 'worker1' did not say that it stopped"));
  CHECK_FALSE(ctx.gradient(x).defined());
  ctx.backward({root}, {.timeout = 60s});
  CHECK(same(ctx.gradient(x), at::ones({3, 3})));
}

}  // namespace

TEST_CASE_TEMPLATE("a pass ends at its timeout, and another may follow", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(out_of_time);
}

// --- what a failed pass leaves -------------------------------------------------------------------

namespace {

at::Tensor failing_weight(int rank) {
  static std::array<at::Tensor, 4> const weights{leaf(10), leaf(11), leaf(12), leaf(13)};
  return weights[std::size_t(rank)];
}
/// Multiplies by a weight of its own on each worker down to `last`.
at::Tensor weighted(at::Tensor const& x, int last) {
  auto& self = this_worker();
  auto const y = x.mul(failing_weight(self.rank()));
  return self.rank() == last ? y : self.rpc_sync<weighted>(self.rank() + 1, y, last);
}
std::size_t gradients_on(Workers const& w, ContextId id) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (w[i].has_context(id)) count += w[i].context_part(id)->gradients().size();
  }
  return count;
}

/// The part that breaks is the last one of the pass, so others are complete before.
at::Tensor breaks_at_the_end(at::Tensor const& x) {
  return this_worker().rpc_sync<weighted>("worker2", breaking(x), 3).mul(failing_weight(1));
}

at::Tensor weighted_and_breaking(at::Tensor const& x) {
  return this_worker()
      .rpc_sync<weighted>("worker2", x.mul(failing_weight(1)), 2)
      .mul(this_worker().rpc_sync<breaking>("worker3", failing_weight(3)));
}

void commits_together(Workers const& w, BackwardMode mode) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<breaks_at_the_end>("worker1", x).sum();
  BackwardOptions const options{
      .mode = mode, .retain_graph = true, .commit = GradientCommit::global};
  failing_break = true;
  for (int i = 0; i < 5; ++i) {
    auto const report = report_of(ctx, root, options);
    CHECK(report.code == int(errc::pass_failed));
    CHECK(report.worker == "worker1");
    CHECK(gradients_on(w, ctx.id()) == 0);
    for (std::size_t rank = 0; rank < w.size(); ++rank) {
      CHECK(w[rank].debug_info().backward_passes == 0);
    }
  }
  failing_break = false;
  ctx.backward({root}, options);
  CHECK(gradients_on(w, ctx.id()) == 4);  // x and the weights of three workers
  auto const here = x.mul(failing_weight(2)).mul(failing_weight(3)).mul(failing_weight(1)).sum();
  rig::check_gradients(ctx, here, {x});
  for (int rank : {1, 2, 3}) {
    auto const expected = rig::local_gradients(here, {failing_weight(rank)})[0];
    CHECK(same(w[std::size_t(rank)].context_part(ctx.id())->gradient(failing_weight(rank)),
               expected));
  }
}

// Whoever is told of the failure has stopped: the next pass meets nothing of this one.
void stops_everywhere(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<weighted_and_breaking>("worker1", x).sum();
  failing_break = true;
  for (int i = 0; i < 20; ++i) {
    CHECK(report_of(ctx, root, {.retain_graph = true}).worker == "worker3");
    for (std::size_t rank = 0; rank < w.size(); ++rank) {
      CHECK(w[rank].debug_info().backward_passes == 0);
    }
  }
  failing_break = false;
  ctx.backward({root});
  auto const left = x.mul(failing_weight(1)).mul(failing_weight(2));
  rig::check_gradients(ctx, left.mul(failing_weight(3)).sum(), {x});
}

// Its scope ends on another thread while nodes run.
void released_meanwhile(Workers const& w) {
  auto const x = leaf(1);
  failing_open = false;
  std::unique_ptr<Context> ctx(new Context(w[0].context()));
  auto const id = ctx->id();
  auto const root = w[0].rpc_sync<gated>("worker1", x).sum();
  Report report;
  std::thread pass([&] {
    try {
      w[0].backward(id, {root});
    } catch (RemoteError const& e) {
      report = {e.code().value(), e.worker(), e.function(), e.remote_text()};
    }
  });
  CHECK(rig::eventually([&] { return w[1].debug_info().backward_passes == 1; }));
  ctx.reset();
  failing_open = true;
  pass.join();
  CHECK(report.code == int(errc::unknown_context));
  CHECK(mentions(report.text, "released during the backward pass"));
}

void unknown_part(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<breaking>("worker1", x);
  CHECK(rig::error_of([&] { w[2].backward(ctx.id(), {y.sum()}); }) == errc::unknown_context);
  ctx.backward({y.sum()});
}

}  // namespace

TEST_CASE_TEMPLATE("with global commit a failed pass leaves all gradients as they were", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { commits_together(w, BackwardMode::smart); });
}
TEST_CASE_TEMPLATE("with global commit a failed pass in FAST mode leaves all as it was", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { commits_together(w, BackwardMode::fast); });
}
TEST_CASE_TEMPLATE("a pass that failed has stopped on every worker", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(stops_everywhere);
}
TEST_CASE_TEMPLATE("[DA-25] a context that is released ends its passes", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(released_meanwhile);
}
TEST_CASE_TEMPLATE("[DA-42] a pass needs a context its worker knows", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(unknown_part);
}

}  // namespace pass_failures_tests
