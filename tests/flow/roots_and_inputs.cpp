// Where a pass starts, which leaves it is for, and where their gradients go.
#include "workers.hpp"

#include <atomic>
#include <string>

#include "kept.hpp"
#include "meddling_transport.hpp"
#include "reports.hpp"

namespace roots_and_inputs_tests {

using namespace distgrad;
using rig::leaf;
using rig::Mode;
using rig::same;
using rig::Workers;

namespace {

at::Tensor roots_mul(at::Tensor const& x, at::Tensor const& y) { return x.mul(y); }

// --- roots ---------------------------------------------------------------------------------------

at::Tensor roots_there;  // a leaf of worker 1
std::atomic<int> roots_hooks{0};

at::Tensor roots_with_leaf(at::Tensor const& x) { return x.mul(roots_there); }

void mixed_roots(Workers const& w) {
  auto const x = leaf(1), y = leaf(2), g = leaf(3).detach();
  auto ctx = w[0].context();
  auto const remote = w[0].rpc_sync<roots_mul>("worker1", x, y);
  auto const scalar = x.pow(2).sum();
  ctx.backward({remote, scalar, x}, {.gradients = {g, {}, g}});
  auto const local = std::vector{x.mul(y), x.pow(2).sum(), x};
  torch::autograd::backward(local, {g, {}, g});
  CHECK(ctx.gradient(x).allclose(x.grad()));  // three terms in another order
  CHECK(same(ctx.gradient(y), y.grad()));
}

// One right root that leads to another worker does not make a pass with a wrong one begin.
void wrong_gradient(Workers const& w) {
  roots_there = rig::kept(leaf(2));
  roots_hooks = 0;
  roots_there.register_hook([](at::Tensor const&) { ++roots_hooks; });
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<roots_with_leaf>("worker1", x);
  std::vector<at::Tensor> const wrong{at::ones({2, 2}), at::ones({3, 4}), at::ones({3, 3, 2})};
  for (auto const& gradient : wrong) {
    auto const text = rig::text_of([&] {
      ctx.backward({root, root}, {.gradients = {at::ones({3, 3}), gradient}});
    });
    CHECK(rig::mentions(text, "shape"));
  }
  CHECK(w[1].debug_info().backward_passes == 0);
  CHECK(w[1].context_part(ctx.id())->gradients().empty());
  CHECK(roots_hooks == 0);
  CHECK(ctx.gradients().empty());
  ctx.backward({root}, {.gradients = {at::ones({3, 3})}});  // nothing has been used up
  CHECK(same(ctx.gradient(x), roots_there.detach()));
  CHECK(roots_hooks == 1);
}

at::Tensor roots_rows(at::Tensor const& x) { return x.mul(2).slice(0, 0, 2); }

void shapes_of_roots(Workers const& w) {
  for (auto mode : {Mode::call, Mode::remote}) {
    auto const x = leaf(1);
    auto ctx = w[0].context();
    auto const rows = rig::run<roots_rows>(w[0], mode, "worker1", x);
    auto const empty = rows.slice(0, 0, 0), one = rows[0][0], transposed = rows.t();
    auto const g = leaf(4).detach();
    std::vector const gradients{at::ones({0, 3}), at::Tensor(), g.narrow(1, 0, 2)};
    ctx.backward({empty, one, transposed}, {.gradients = gradients});
    auto const local = roots_rows(x);
    torch::autograd::backward({local.slice(0, 0, 0), local[0][0], local.t()}, gradients);
    CHECK(same(ctx.gradient(x), x.grad()));
  }
}

// The very tensor that came from another worker, twice, and a leaf that another worker returned.
void received_roots(Workers const& w) {
  roots_there = rig::kept(leaf(2));
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<roots_with_leaf>("worker1", x);
  auto const g = leaf(5).detach();
  ctx.backward({root, root}, {.gradients = {g, g}});
  CHECK(same(ctx.gradient(x), g.add(g).mul(roots_there.detach())));
  CHECK(same(w[1].context_part(ctx.id())->gradient(roots_there), g.add(g).mul(x.detach())));
}

// --- inputs --------------------------------------------------------------------------------------

std::atomic<int> inputs_unwanted{0};
at::Tensor inputs_first, inputs_second;  // leaves of worker 1
at::Tensor inputs_at_home;               // a leaf of worker 0, used in its own handler

void watch_unwanted(at::Tensor const& tensor) {
  tensor.register_hook([](at::Tensor const&) { ++inputs_unwanted; });
}

at::Tensor inputs_layer(at::Tensor const& x) {
  auto const side = inputs_second.exp();  // leads to no leaf of the initiator's
  watch_unwanted(side);
  return x.mul(inputs_first).add(side);
}

void only_these(Workers const& w) {
  inputs_first = rig::kept(leaf(3));
  inputs_second = rig::kept(leaf(4));
  auto const x = leaf(1), y = leaf(2);
  for (auto const& tensor : {inputs_first, inputs_second, y}) watch_unwanted(tensor);
  inputs_unwanted = 0;
  auto const graph = [&](Mode mode) {
    return rig::run<inputs_layer>(w[0], mode, "worker1", x).mul(y).sum();
  };
  auto const expected = rig::local_gradients(graph(Mode::local), {x})[0];
  inputs_unwanted = 0;
  auto ctx = w[0].context();
  auto const root = graph(Mode::call);
  ctx.backward({root}, {.retain_graph = true, .inputs = {x}});
  CHECK(same(ctx.gradient(x), expected));
  CHECK(ctx.gradients().size() == 1);
  CHECK(w[1].context_part(ctx.id())->gradients().empty());
  CHECK(inputs_unwanted == 0);
  ctx.backward({root}, {.inputs = {}});  // now all of them
  CHECK(same(ctx.gradient(x), expected.add(expected)));
  CHECK(ctx.gradients().size() == 2);
  CHECK(w[1].context_part(ctx.id())->gradients().size() == 2);
  CHECK(inputs_unwanted == 4);
}

// Worker 1's leaves get nothing, though worker 1 needs no message at all for this one.
void inputs_before_the_call(Workers const& w) {
  inputs_first = rig::kept(leaf(3));
  inputs_second = rig::kept(leaf(4));
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<inputs_layer>("worker1", x).mul(y).sum();
  ctx.backward({root}, {.inputs = {y}});
  CHECK(same(ctx.gradient(y), inputs_layer(x.detach()).detach()));
  CHECK(ctx.gradients().size() == 1);
  CHECK(w[1].context_part(ctx.id())->gradients().empty());
}

at::Tensor inputs_inner(at::Tensor const& x) { return x.mul(inputs_at_home).tanh(); }
at::Tensor inputs_outer(at::Tensor const& x) {
  return this_worker().rpc_sync<inputs_inner>("worker0", x.mul(inputs_first)).mul(2);
}
at::Tensor inputs_outer_here(at::Tensor const& x) {
  return inputs_inner(x.mul(inputs_first)).mul(2);
}

// The only path from the root to the leaf leads to worker 1 and back.
void inputs_behind_another(Workers const& w) {
  inputs_first = rig::kept(leaf(3));
  inputs_at_home = rig::kept(leaf(4));
  auto const x = leaf(1);
  auto const local = inputs_outer_here(x).sum();
  auto const expected = rig::local_gradients(local, {inputs_at_home, x});
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<inputs_outer>("worker1", x).sum();
  ctx.backward({root}, {.retain_graph = true, .inputs = {inputs_at_home}});
  CHECK(same(ctx.gradient(inputs_at_home), expected[0]));
  CHECK(ctx.gradients().size() == 1);
  ctx.backward({root}, {.retain_graph = true, .inputs = {x}});
  CHECK(same(ctx.gradient(x), expected[1]));
  CHECK(same(ctx.gradient(inputs_at_home), expected[0]));  // not again
  CHECK(w[1].context_part(ctx.id())->gradients().empty());
  auto const both = ctx.grad({root}, {inputs_at_home, x});
  CHECK(same(both[0], expected[0]));
  CHECK(same(both[1], expected[1]));
  CHECK(same(ctx.gradient(x), expected[1]));  // grad stores nothing
}

void wrong_inputs(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  auto const received = w[0].rpc_sync<roots_mul>("worker1", x, y);
  auto const root = received.sum();
  std::vector<at::Tensor> const wrong{received, x.mul(2), at::ones({3, 3}), at::Tensor()};
  for (auto const& input : wrong) {
    CHECK((rig::error_of([&] {
             ctx.backward({root}, {.inputs = {x, input}});
           }) == errc::invalid_argument));
    CHECK((rig::error_of([&] { ctx.grad({root}, {input}); }) == errc::invalid_argument));
  }
  CHECK((rig::error_of([&] { ctx.grad({root}, {}); }) == errc::invalid_argument));
  CHECK(ctx.gradients().empty());
  CHECK(w[1].debug_info().backward_passes == 0);
  auto const unreached = leaf(5);
  auto const found = ctx.grad({root}, {unreached, x, x});
  CHECK_FALSE(found[0].defined());
  CHECK(same(found[1], y.detach()));
  CHECK(same(found[2], y.detach()));
}

// --- .grad ---------------------------------------------------------------------------------------

void into_grad(Workers const& w) {
  for (auto commit : {GradientCommit::local, GradientCommit::global}) {
    roots_there = rig::kept(leaf(2));
    auto const x = leaf(1);
    auto ctx = w[0].context();
    auto const root = w[0].rpc_sync<roots_with_leaf>("worker1", x).sum();
    auto const once_x = roots_there.detach().clone(), once_there = x.detach().clone();
    BackwardOptions const options{.retain_graph = true, .accumulate_grad = true, .commit = commit};
    ctx.backward({root}, options);
    CHECK(same(x.grad(), once_x));
    CHECK(same(roots_there.grad(), once_there));
    auto const* const kept = x.grad().data_ptr();
    ctx.backward({root}, options);
    CHECK(same(x.grad(), once_x.add(once_x)));
    CHECK(same(roots_there.grad(), once_there.add(once_there)));
    CHECK(x.grad().data_ptr() == kept);  // added to in place, like libtorch does
    CHECK(ctx.gradients().empty());
    CHECK(w[1].context_part(ctx.id())->gradients().empty());

    x.mutable_grad() = at::Tensor();  // what zero_grad does
    ctx.backward({root}, {.inputs = {x}, .accumulate_grad = true, .commit = commit});
    CHECK(same(x.grad(), once_x));
    CHECK(same(roots_there.grad(), once_there.add(once_there)));
  }
}

at::Tensor roots_sum(at::Tensor const& factor) { return roots_there.mul(factor).sum(); }

// Each in contexts of its own. The leaf is so large that adding to it is most of what a pass does;
// with create_graph the sum is a new tensor, so that one of two at a time would be lost.
void grad_of_many_at_once(Workers const& w, bool create_graph) {
  roots_there = rig::kept(at::ones({512, 512}).set_requires_grad(true));
  constexpr int passes = 50;
  auto const train = [&](Worker const& worker) {
    for (int i = 0; i < passes; ++i) {
      auto ctx = worker.context();
      auto const root = worker.rpc_sync<roots_sum>("worker1", at::ones({}));
      ctx.backward({root}, {.create_graph = create_graph, .accumulate_grad = true});
    }
  };
  std::vector<std::thread> others;
  for (int rank : {2, 3}) others.emplace_back([&, rank] { train(w[std::size_t(rank)]); });
  train(w[0]);
  for (auto& other : others) other.join();
  CHECK(same(roots_there.grad(), at::ones({512, 512}).mul(3 * passes)));
}

// Passes of one context that run at the same time, into the context and into .grad.
void grad_and_context_at_once(Workers const& w) {
  roots_there = rig::kept(at::ones({3, 3}).set_requires_grad(true));
  auto const x = at::ones({3, 3}).set_requires_grad(true);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<roots_with_leaf>("worker1", x).sum();
  constexpr int passes = 50;
  auto const run = [&](bool accumulate_grad) {
    for (int i = 0; i < passes; ++i) {
      ctx.backward({root}, {.retain_graph = true, .accumulate_grad = accumulate_grad});
    }
  };
  std::thread other([&] { run(true); });
  run(false);
  other.join();
  auto const expected = at::ones({3, 3}).mul(passes);
  CHECK(same(x.grad(), expected));
  CHECK(same(roots_there.grad(), expected));
  CHECK(same(ctx.gradient(x), expected));
  CHECK(same(w[1].context_part(ctx.id())->gradient(roots_there), expected));
}

}  // namespace

TEST_CASE_TEMPLATE("[C-008] remote, local and leaf roots, with gradients and without", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(mixed_roots);
}
TEST_CASE_TEMPLATE("[C-008] a gradient of a wrong shape is refused before anything happens", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(wrong_gradient);
}
TEST_CASE_TEMPLATE("roots may be empty, 0-dim and transposed", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(shapes_of_roots);
}
TEST_CASE_TEMPLATE("what another worker returned may be a root, twice", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(received_roots);
}
TEST_CASE_TEMPLATE("with inputs only they get gradients, and no other leaf's hook runs", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(only_these);
}
TEST_CASE_TEMPLATE("inputs on this side of a call leave the other side alone", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(inputs_before_the_call);
}
TEST_CASE_TEMPLATE("inputs are found behind another worker", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(inputs_behind_another);
}
TEST_CASE_TEMPLATE("inputs that are no leaves of this worker are refused", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(wrong_inputs);
}
TEST_CASE_TEMPLATE("[C-007] gradients are added to .grad on every worker when asked for", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(into_grad);
}
TEST_CASE_TEMPLATE("[C-007] passes of three workers add to one .grad, each once", Engine,
                   DISTGRAD_ENGINES) {
  for (bool create_graph : {false, true}) {
    rig::on_cluster<Engine>([=](Workers const& w) { grad_of_many_at_once(w, create_graph); });
  }
}
TEST_CASE_TEMPLATE("passes into .grad and into the context do not disturb each other", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(grad_and_context_at_once);
}
TEST_CASE("[C-008] no message is sent for roots, gradients or inputs that are refused") {
  using Engine = DistEngine<rig::MeddlingTransport<LoopbackTransport>, CpuQueues>;
  auto const meddling = std::make_shared<rig::Meddling>();
  auto options = rig::options<Engine>();
  options.transport.meddling = meddling;
  rig::Cluster<2, Engine> cluster(std::move(options));
  Workers const w(cluster);
  {
    roots_there = rig::kept(leaf(2));
    auto const x = leaf(1);
    auto ctx = w[0].context();
    auto const root = w[0].rpc_sync<roots_with_leaf>("worker1", x);
    auto const fits = at::ones({3, 3}), wrong = at::ones({2, 2});
    for (auto mode : {BackwardMode::smart, BackwardMode::fast}) {
      CHECK_THROWS_AS(ctx.backward({root, root}, {.mode = mode, .gradients = {fits, wrong}}),
                      Error);
      CHECK_THROWS_AS(ctx.backward({root, x.detach()}, {.mode = mode, .gradients = {fits, fits}}),
                      Error);
      CHECK_THROWS_AS(ctx.backward({root}, {.mode = mode, .gradients = {fits}, .inputs = {root}}),
                      Error);
    }
    CHECK(meddling->count_passes() == 0);
    ctx.backward({root}, {.gradients = {fits}});
    CHECK(meddling->count_passes() > 0);
  }
  cluster.shutdown();
}

}  // namespace roots_and_inputs_tests
