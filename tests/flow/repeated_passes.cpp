// Several passes over one graph: one after another, at the same time, and started by any worker
// that is in the context.
#include "workers.hpp"

#include <atomic>
#include <string>

#include "kept.hpp"
#include "reports.hpp"

namespace repeated_passes_tests {

using namespace distgrad;
using rig::leaf;
using rig::same;
using rig::Workers;

namespace {

at::Tensor repeated_p1, repeated_p2;  // leaves of workers 1 and 2

at::Tensor repeated_last(at::Tensor const& x) { return x.mul(repeated_p2); }
at::Tensor repeated_chain(at::Tensor const& x) {
  return this_worker().rpc_sync<repeated_last>("worker2", x.mul(repeated_p1)).add(x);
}
at::Tensor repeated_chain_here(at::Tensor const& x) {
  return x.mul(repeated_p1).mul(repeated_p2).add(x);
}

struct Expected {
  at::Tensor x, p1, p2;
};
Expected expected_of(at::Tensor const& x) {
  auto const all =
      rig::local_gradients(repeated_chain_here(x).sum(), {x, repeated_p1, repeated_p2});
  return {all[0], all[1], all[2]};
}
void check_times(Workers const& w, Context const& ctx, at::Tensor const& x, int passes) {
  auto const once = expected_of(x);
  auto const part = [&](int rank, at::Tensor const& variable) {
    return w[std::size_t(rank)].context_part(ctx.id())->gradient(variable);
  };
  // Of integers: sums of any number of them are exact.
  CHECK(same(ctx.gradient(x), once.x.mul(passes)));
  CHECK(same(part(1, repeated_p1), once.p1.mul(passes)));
  CHECK(same(part(2, repeated_p2), once.p2.mul(passes)));
}
at::Tensor whole_numbers(int seed) {
  return at::arange(9, at::kFloat).add(seed).reshape({3, 3}).set_requires_grad(true);
}
at::Tensor fresh() {
  repeated_p1 = rig::kept(whole_numbers(2));
  repeated_p2 = rig::kept(whole_numbers(3));
  return whole_numbers(1);
}

// --- one after another ---------------------------------------------------------------------------

void one_too_many(Workers const& w) {
  for (auto mode : {BackwardMode::smart, BackwardMode::fast}) {
    auto const x = fresh();
    auto ctx = w[0].context();
    auto const root = w[0].rpc_sync<repeated_chain>("worker1", x).sum();
    for (int pass = 1; pass <= 3; ++pass) {
      ctx.backward({root}, {.mode = mode, .retain_graph = true});
      check_times(w, ctx, x, pass);
    }
    ctx.backward({root}, {.mode = mode});
    check_times(w, ctx, x, 4);
    auto const report = rig::report_of(ctx, root, {.mode = mode});
    CHECK(report.code == int(errc::pass_failed));
    CHECK(report.worker == "worker2");  // the first worker whose node had saved something
    CHECK(rig::mentions(report.node, "Mul"));
    CHECK(rig::mentions(report.text, "backward through the graph a second time"));
    check_times(w, ctx, x, 4);
    // Nodes that saved nothing, and a new graph, can go on.
    ctx.backward({w[0].rpc_sync<repeated_chain>("worker1", x).sum()}, {});
    check_times(w, ctx, x, 5);
  }
}

// --- started by others ---------------------------------------------------------------------------

/// Worker 1 computes a loss and runs a pass in its caller's context.
void repeated_pass_there(at::Tensor const& x, int passes) {
  auto& self = this_worker();
  auto const root = repeated_chain(x).sum();
  for (int i = 0; i < passes; ++i) {
    self.backward(self.current_context(), {root}, {.retain_graph = true});
  }
}

void other_initiators(Workers const& w) {
  auto const x = fresh();
  auto ctx = w[0].context();
  w[0].rpc_sync<repeated_pass_there>("worker1", x, 2);
  check_times(w, ctx, x, 2);
  auto const root = w[0].rpc_sync<repeated_chain>("worker1", x).sum();
  ctx.backward({root}, {.retain_graph = true});
  check_times(w, ctx, x, 3);
  w[0].rpc_sync<repeated_pass_there>("worker1", x, 1);
  check_times(w, ctx, x, 4);
  ctx.backward({root});
  check_times(w, ctx, x, 5);
  auto const id = ctx.id();
  CHECK((rig::error_of([&] { w[3].backward(id, {root}); }) == errc::unknown_context));
}

/// The gradient of what the caller sent, with respect to a leaf of this worker.
at::Tensor repeated_grad_there(at::Tensor const& x) {
  auto& self = this_worker();
  return self.grad(self.current_context(), {repeated_chain(x).sum()}, {repeated_p1})[0];
}

void grad_of_another(Workers const& w) {
  auto const x = fresh();
  auto ctx = w[0].context();
  auto const found = w[0].rpc_sync<repeated_grad_there>("worker1", x);
  CHECK(same(found.detach(), expected_of(x).p1));
  CHECK(ctx.gradients().empty());
  CHECK(w[1].context_part(ctx.id())->gradients().empty());
  CHECK(w[2].context_part(ctx.id())->gradients().empty());
}

// --- at the same time ----------------------------------------------------------------------------

void passes_at_once(Workers const& w) {
  auto const x = fresh();
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<repeated_chain>("worker1", x).sum();
  constexpr int threads = 4, passes = 25;
  std::vector<std::thread> running;
  std::atomic<int> failures{0};
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&] {
      for (int pass = 0; pass < passes; ++pass) {
        failures += !rig::text_of([&] { ctx.backward({root}, {.retain_graph = true}); }).empty();
      }
    });
  }
  for (auto& thread : running) thread.join();
  CHECK(failures == 0);
  check_times(w, ctx, x, threads * passes);
  ctx.backward({root});
  check_times(w, ctx, x, threads * passes + 1);
}

void initiators_at_once(Workers const& w) {
  auto const x = fresh();
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<repeated_chain>("worker1", x).sum();
  constexpr int passes = 25;
  auto const there = w[0].rpc_async<repeated_pass_there>("worker1", x, passes);
  for (int pass = 0; pass < passes; ++pass) ctx.backward({root}, {.retain_graph = true});
  there.get();
  check_times(w, ctx, x, 2 * passes);
}

// Of passes over different parts of a graph each adds only what its own roots lead to.
void roots_apart(Workers const& w) {
  auto const x = fresh(), y = whole_numbers(4);
  auto ctx = w[0].context();
  auto const first = w[0].rpc_sync<repeated_chain>("worker1", x);
  auto const second = w[0].rpc_sync<repeated_last>("worker2", y);
  constexpr int passes = 20;
  auto const run = [&](at::Tensor const& root) {
    for (int i = 0; i < passes; ++i) ctx.backward({root}, {.retain_graph = true});
  };
  std::thread other([&] { run(second.sum()); });
  run(first.sum());
  other.join();
  auto const once = expected_of(x);
  CHECK(same(ctx.gradient(x), once.x.mul(passes)));
  CHECK(same(ctx.gradient(y), repeated_p2.detach().mul(passes)));
  auto const there = w[2].context_part(ctx.id())->gradient(repeated_p2);
  CHECK(same(there, once.p2.add(y.detach()).mul(passes)));
}

}  // namespace

TEST_CASE_TEMPLATE("[C-009] passes over a retained graph add up, and one too many says where",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(one_too_many);
}
TEST_CASE_TEMPLATE("a worker that was called may start a pass in its caller's context", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(other_initiators);
}
TEST_CASE_TEMPLATE("a worker that was called may take derivatives in its caller's context", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(grad_of_another);
}
TEST_CASE_TEMPLATE("passes of one context that run at the same time add up", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(passes_at_once);
}
TEST_CASE_TEMPLATE("passes that two workers start at the same time add up", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(initiators_at_once);
}
TEST_CASE_TEMPLATE("passes over two parts of a graph at the same time keep them apart", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(roots_apart);
}

}  // namespace repeated_passes_tests
