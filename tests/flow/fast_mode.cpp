// FAST mode: what it cannot do ends with an error that says why.
#include "reports.hpp"
#include "workers.hpp"

#include <atomic>
#include <stdexcept>

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

namespace fast_mode_tests {

using namespace distgrad;
using namespace std::chrono_literals;
using rig::leaf;
using rig::mentions;
using rig::report_of;
using rig::same;
using rig::Workers;

namespace {

using torch::autograd::AutogradContext;

BackwardOptions const fast{.mode = BackwardMode::fast};

at::Tensor fast_add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }
at::Tensor fast_mul(at::Tensor const& x, at::Tensor const& y) { return x.mul(y); }
at::Tensor first_of(at::Tensor const& x, at::Tensor const&) { return x.mul(2); }
at::Tensor forgets(at::Tensor const& x) { return x.detach().mul(2); }
at::Tensor uses_a_neighbour(at::Tensor const& x) {
  this_worker().rpc_sync<fast_add>("worker2", x, x);  // result not used
  return x.mul(3);
}

/// The message that brought `tensors` tensors to `to`.
std::string message_to(Worker const& worker, ContextId id, WorkerId to, std::size_t tensors) {
  for (auto const& node : worker.context_part(id)->sends()) {
    auto const& send = static_cast<SendRpcBackward const&>(*node);
    if (send.to() == to && send.num_inputs() == tensors) return to_string(send.id());
  }
  return "none";
}

void unused_result(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  {
    auto ctx = w[0].context();
    w[0].rpc_sync<fast_add>("worker1", x, y);
    auto const report = report_of(ctx, x.mul(y).sum(), fast);
    CHECK(report.code == int(errc::pass_stuck));
    CHECK(mentions(report.text, message_to(w[0], ctx.id(), WorkerId{1}, 2)));
    CHECK(mentions(report.text, "worker 'worker0' waited"));
    CHECK(w[0].debug_info().backward_passes == 0);
    CHECK(ctx.gradients().empty());
  }
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<fast_mul>("worker1", x, y).sum()});
  rig::check_gradients(ctx, x.mul(y).sum(), {x, y});
}

// Other calls to the same worker are used, so it takes part, and waits, too.
void partly_used(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  w[0].rpc_sync<fast_add>("worker1", x, y);
  auto const report = report_of(ctx, w[0].rpc_sync<fast_mul>("worker1", x, y).sum(), fast);
  CHECK(report.code == int(errc::pass_stuck));
  CHECK(mentions(report.text, "worker 'worker0' waited"));
  CHECK(mentions(report.text, "worker 'worker1' waited"));
}

// The participant is done long before the watchdog looks.
void done_participant(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  CHECK_FALSE(w[0].rpc_sync<forgets>("worker1", x).requires_grad());
  auto const report = report_of(ctx, w[0].rpc_sync<fast_mul>("worker1", x, y).sum(), fast);
  CHECK(report.code == int(errc::pass_stuck));
  CHECK(mentions(report.text, message_to(w[0], ctx.id(), WorkerId{1}, 1)));
  CHECK_FALSE(mentions(report.text, message_to(w[0], ctx.id(), WorkerId{1}, 2)));
}

void unused_further_away(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const report = report_of(ctx, w[0].rpc_sync<uses_a_neighbour>("worker1", x).sum(), fast);
  CHECK(report.code == int(errc::pass_stuck));
  CHECK(mentions(report.text, message_to(w[1], ctx.id(), WorkerId{2}, 2)));
  CHECK(mentions(report.text, "which it had sent to worker 'worker2'"));
}

// An argument that has no influence gets no gradient, and nobody waits for one.
void unused_argument(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<first_of>("worker1", x, y).sum()}, fast);
  CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(2)));
  CHECK_FALSE(ctx.gradient(y).defined());
}

std::atomic<int> fast_waited{0};

/// Takes its time in backward: fifty watchdog intervals.
struct Slow : torch::autograd::Function<Slow> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    auto const end = std::chrono::steady_clock::now() + 100ms;
    rig::eventually([&] { return std::chrono::steady_clock::now() > end; });
    ++fast_waited;
    return gradients;
  }
};
at::Tensor slow(at::Tensor const& x) { return Slow::apply(x); }

void slow_is_not_stuck(Workers const& w) {
  auto const x = leaf(1);
  fast_waited = 0;
  auto ctx = w[0].context();
  auto const there = w[0].rpc_sync<slow>("worker1", x);
  ctx.backward({w[0].rpc_sync<slow>("worker2", there).sum()}, fast);
  CHECK(fast_waited == 2);
  CHECK(same(ctx.gradient(x), at::ones({3, 3})));
}

}  // namespace

TEST_CASE_TEMPLATE("a pass that waits for an unused result ends and says for which message", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(unused_result, 20ms);
}
TEST_CASE_TEMPLATE("a pass is stuck though other results of the same worker are used", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(partly_used, 20ms);
}
TEST_CASE_TEMPLATE("a pass is stuck though every participant is done", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(done_participant, 20ms);
}
TEST_CASE_TEMPLATE("a pass is stuck because of a call between two other workers", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(unused_further_away, 20ms);
}
TEST_CASE_TEMPLATE("an argument without influence on the result holds nobody up", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(unused_argument, 20ms);
}
TEST_CASE_TEMPLATE("a slow node is not taken for a standstill", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(slow_is_not_stuck, 2ms);
}

}  // namespace fast_mode_tests
