// Backward passes: their arguments, and several of them.
#include "workers.hpp"

#include <atomic>

#include <ATen/ops/linalg_multi_dot.h>
#include <ATen/ops/ones.h>

namespace passes_tests {

using namespace distgrad;
using namespace std::chrono_literals;
using rig::Layout;
using rig::leaf;
using rig::Mode;
using rig::same;
using rig::Workers;

namespace {

at::Tensor passes_add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }
at::Tensor passes_mul(at::Tensor const& x, at::Tensor const& y) { return x.mul(y); }

int state(error_code code) { return code.value(); }

template <class F>
void check_error(errc expected, F&& f) {
  CHECK(state(rig::error_of(f)) == int(expected));
}

}  // namespace

// --- arguments -----------------------------------------------------------------------------------

namespace {

void local_graph(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto const root = x.matmul(y).add(x).sum();
  auto ctx = w[0].context();
  ctx.backward({root}, {.retain_graph = true});
  rig::check_gradients(ctx, root, {x, y});
  CHECK(ctx.gradients().size() == 2);
  CHECK(ctx.known_workers().empty());
  CHECK(w[0].debug_info().backward_passes == 0);
}

void invalid_roots(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  check_error(errc::invalid_root, [&] { ctx.backward({}); });
  check_error(errc::invalid_root, [&] { ctx.backward({at::ones({})}); });
  check_error(errc::invalid_root, [&] { ctx.backward({at::Tensor()}); });
  check_error(errc::invalid_root, [&] { ctx.backward({x.mul(2)}); });
  check_error(errc::invalid_root, [&] { ctx.backward({x.sum(), at::ones({})}); });
  check_error(errc::invalid_root, [&] {
    ctx.backward({x.mul(2)}, {.gradients = {at::ones({5, 7})}});
  });
  check_error(errc::invalid_argument, [&] {
    ctx.backward({x.sum()}, {.gradients = {at::ones({}), at::ones({})}});
  });
  CHECK(ctx.gradients().empty());
  CHECK(w[0].debug_info().backward_passes == 0);
  ctx.backward({x.sum()});
  CHECK(same(ctx.gradient(x), at::ones({3, 3})));
}

void unknown_context(Workers const& w) {
  auto const x = leaf(1);
  std::optional<ContextId> id;
  {
    auto ctx = w[0].context();
    w[0].rpc_sync<passes_add>("worker1", x, x);
    id = ctx.id();
    check_error(errc::unknown_context, [&] { w[2].context_part(*id); });
  }
  check_error(errc::unknown_context, [&] { w[0].context_part(*id); });
  CHECK(rig::eventually([&] { return w.none_knows(*id); }));
  check_error(errc::unknown_context, [&] { w[1].context_part(*id); });
}

void leaf_roots(Workers const& w) {
  auto const x = leaf(1), scalar = at::ones({}).set_requires_grad(true);
  auto const g = at::arange(9, at::kFloat).reshape({3, 3});
  auto ctx = w[0].context();
  ctx.backward({scalar});
  CHECK(same(ctx.gradient(scalar), at::ones({})));
  ctx.backward({x}, {.gradients = {g}});
  CHECK(same(ctx.gradient(x), g));
}

void explicit_gradients(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto const g = at::arange(9, at::kFloat).reshape({3, 3});
  auto ctx = w[0].context();
  auto const product = w[0].rpc_sync<passes_mul>("worker1", x, y);
  auto const sum = w[0].rpc_sync<passes_add>("worker2", x, y);
  // One root with a gradient of its own, one whose gradient is 1.
  ctx.backward({product, sum.sum()}, {.gradients = {g, at::Tensor()}});
  rig::check_gradients(ctx, x.mul(y).mul(g).sum().add(x.add(y).sum()), {x, y});
}

void four_roots(Workers const& w) {
  auto const a = leaf(1), b = leaf(2), c = leaf(3), d = leaf(4);
  auto ctx = w[0].context();
  std::vector<at::Tensor> const roots{w[0].rpc_sync<passes_add>("worker1", a, b).sum(),
                                      w[0].rpc_sync<passes_mul>("worker2", a, c).sum(),
                                      w[0].rpc_sync<passes_mul>("worker3", c, d).sum(),
                                      w[0].rpc_sync<passes_add>("worker0", d, a).sum()};
  ctx.backward(roots);
  auto const local = a.add(b).sum().add(a.mul(c).sum()).add(c.mul(d).sum()).add(d.add(a).sum());
  auto const expected = rig::local_gradients(local, {a, b, c, d});
  CHECK(ctx.gradient(a).allclose(expected[0]));  // the order of three terms may differ
  CHECK(same(ctx.gradient(b), expected[1]));
  CHECK(same(ctx.gradient(c), expected[2]));
  CHECK(same(ctx.gradient(d), expected[3]));
}

void two_dtypes(Workers const& w, Layout layout) {
  auto const x = leaf(1, layout);
  auto const y = leaf(2, layout).detach().to(at::kDouble).set_requires_grad(true);
  for (auto mode : {Mode::local, Mode::call, Mode::remote}) {
    auto ctx = w[0].context();
    auto const root = rig::run<passes_add>(w[0], mode, "worker1", x, y);
    auto const g = rig::ones_for(root);
    ctx.backward({root}, {.gradients = {g}});
    CHECK((ctx.gradient(x).scalar_type() == at::kFloat));
    CHECK((ctx.gradient(y).scalar_type() == at::kDouble));
    rig::check_gradients(ctx, x.add(y), {x, y}, g);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("[DA-43] a pass over a graph without any call is a local one", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(local_graph);
}
TEST_CASE_TEMPLATE("[DA-44] roots that cannot start a pass are refused, each with its error",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(invalid_roots);
}
TEST_CASE_TEMPLATE("[DA-44] a context is unknown where it never came and after its end", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(unknown_context);
}
TEST_CASE_TEMPLATE("[DA-44] a leaf may be a root", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(leaf_roots);
}
TEST_CASE_TEMPLATE("[DA-44] roots of any shape start with the gradients they are given", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(explicit_gradients);
}
TEST_CASE_TEMPLATE("[DA-45] gradients of four roots from four workers are summed", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(four_roots);
}
TEST_CASE_TEMPLATE("[DA-46] each leaf gets a gradient of its own dtype", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { two_dtypes(w, Layout::dense); });
}
TEST_CASE_TEMPLATE("[DA-46] each sparse leaf gets a gradient of its own dtype", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { two_dtypes(w, Layout::sparse); });
}

// --- functions -----------------------------------------------------------------------------------

namespace {

at::Tensor twice_plus(at::Tensor const& x, at::Tensor const& y) { return x.add(x).add(y); }

void by_remote(Workers const& w, Layout layout) {
  auto const x = leaf(1, layout), y = leaf(2, layout);
  auto ctx = w[0].context();
  auto const root = w[0].remote<twice_plus>("worker1", x, y).to_here();
  auto const g = rig::ones_for(root);
  ctx.backward({root}, {.gradients = {g}});
  rig::check_gradients(ctx, twice_plus(x, y), {x, y}, g);
}

at::Tensor long_chain(at::Tensor const& x, at::Tensor const& y, at::Tensor const& z) {
  auto value = x;
  for (int i = 0; i < 5; ++i) value = value.matmul(y).tanh().add(x);
  return at::linalg_multi_dot({value, y, z, value});
}

void complex_function(Workers const& w) {
  auto const x = leaf(1), y = leaf(2), z = leaf(3);
  for (auto mode : {Mode::local, Mode::call, Mode::remote}) {
    auto ctx = w[0].context();
    ctx.backward({rig::run<long_chain>(w[0], mode, "worker1", x, y, z).sum()});
    rig::check_gradients(ctx, long_chain(x, y, z).sum(), {x, y, z});
  }
}

at::Tensor nested_outer(at::Tensor const& x, at::Tensor const& y) {
  auto const inner = this_worker().rpc_sync<twice_plus>("worker2", x, y);
  return inner.add(y);
}
at::Tensor nested_outer_here(at::Tensor const& x, at::Tensor const& y) {
  return twice_plus(x, y).add(y);
}

void nested(Workers const& w, Layout layout) {
  auto const x = leaf(1, layout), y = leaf(2, layout);
  for (auto mode : {Mode::call, Mode::remote}) {
    auto ctx = w[0].context();
    auto const root = rig::run<nested_outer>(w[0], mode, "worker1", x, y);
    auto const g = rig::ones_for(root);
    ctx.backward({root}, {.gradients = {g}});
    rig::check_gradients(ctx, nested_outer_here(x, y), {x, y}, g);
  }
}

at::Tensor by_requirement(at::Tensor const& x, at::Tensor const& y) {
  if (x.requires_grad() && !y.requires_grad()) return x.mul(2).add(y);
  return x.mul(at::zeros({3, 3}));
}

void flags_are_seen(Workers const& w, Layout layout) {
  auto const x = leaf(1, layout);
  auto const y = leaf(2, layout).detach();
  for (auto mode : {Mode::call, Mode::remote}) {
    auto ctx = w[0].context();
    auto const root = rig::run<by_requirement>(w[0], mode, "worker1", x, y);
    auto const g = rig::ones_for(root);
    ctx.backward({root}, {.gradients = {g}});
    rig::check_gradients(ctx, by_requirement(x, y), {x}, g);
    CHECK_FALSE(ctx.gradient(y).defined());
    CHECK(ctx.gradients().size() == 1);
  }
}

void two_passes(Workers const& w, Layout layout) {
  auto const x = leaf(1, layout), y = leaf(2, layout);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<nested_outer>("worker1", x, y);
  auto const g = rig::ones_for(root);
  ctx.backward({root}, {.retain_graph = true, .gradients = {g}});
  ctx.backward({root}, {.gradients = {g}});
  auto const once = rig::local_gradients(nested_outer_here(x, y), {x, y}, g);
  CHECK(same(ctx.gradient(x), once[0].add(once[0])));
  CHECK(same(ctx.gradient(y), once[1].add(once[1])));
}

void accumulation(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<passes_mul>("worker1", x, y).sum();
  ctx.backward({root}, {.retain_graph = true});
  rig::check_gradients(ctx, x.mul(y).sum(), {x, y});
  auto const first = ctx.gradient(x).clone();
  ctx.backward({root}, {.retain_graph = true});
  CHECK(same(ctx.gradient(x), first.add(first)));
  CHECK(same(ctx.gradient(y), x.detach().mul(2)));
}

void many_passes(Workers const& w, Layout layout, int passes) {
  auto const x = leaf(1, layout), y = leaf(2, layout);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<passes_add>("worker1", x, y);
  auto const g = rig::ones_for(root);
  for (int i = 0; i < passes; ++i) {
    ctx.backward({root}, {.retain_graph = true, .gradients = {g}});
  }
  CHECK(ctx.gradient(x).to_dense().equal(at::ones({3, 3}).mul(passes)));
  CHECK(ctx.gradient(y).to_dense().equal(at::ones({3, 3}).mul(passes)));
  CHECK(w[1].debug_info().backward_passes == 0);
}

// Each thread in a context of its own; what one of them sees must not depend on the others.
void hammer(Workers const& w) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (std::size_t rank = 1; rank < 4; ++rank) {
    for (int i = 0; i < 20; ++i) {
      threads.emplace_back([&worker = w[rank], &right, seed = int(rank) * 20 + i] {
        auto const x = leaf(seed), y = leaf(seed + 1);
        auto const expected = rig::local_gradients(x.mul(y).add(x).sum(), {x, y});
        auto ctx = worker.context();
        auto const product = worker.rpc_sync<passes_mul>("worker0", x, y);
        ctx.backward({worker.rpc_sync<passes_add>("worker0", product, x).sum()});
        right += ctx.gradients().size() == 2 && same(ctx.gradient(x), expected[0]) &&
                 same(ctx.gradient(y), expected[1]);
      });
    }
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == 60);
}

}  // namespace

TEST_CASE_TEMPLATE("[DA-47] a user function run by remote is differentiated", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) {
    by_remote(w, Layout::dense);
    by_remote(w, Layout::sparse);
  });
}
TEST_CASE_TEMPLATE("[DA-49] a long function with a product of many matrices is differentiated",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(complex_function);
}
TEST_CASE_TEMPLATE("[DA-52] a nested function has the gradients of the local one", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) {
    nested(w, Layout::dense);
    nested(w, Layout::sparse);
  });
}
TEST_CASE_TEMPLATE("[DA-53] a callee sees which arguments require gradients", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) {
    flags_are_seen(w, Layout::dense);
    flags_are_seen(w, Layout::sparse);
  });
}
TEST_CASE_TEMPLATE("[DA-54] sixty threads on three workers use one at the same time", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(hammer);
}
TEST_CASE_TEMPLATE("[DA-55] two passes in a context accumulate", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(accumulation);
}
TEST_CASE_TEMPLATE("[DA-56] two passes through a nested call accumulate", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) {
    two_passes(w, Layout::dense);
    two_passes(w, Layout::sparse);
  });
}
TEST_CASE_TEMPLATE("[DA-57] a thousand passes over one graph accumulate", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) {
    many_passes(w, Layout::dense, 1000);
    many_passes(w, Layout::sparse, 100);
  });
}

}  // namespace passes_tests
