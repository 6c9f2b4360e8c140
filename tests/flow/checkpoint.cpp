#include "workers.hpp"

#include <atomic>
#include <map>
#include <optional>

#include <ATen/ops/dropout.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/rand.h>

#include <torch/csrc/autograd/custom_function.h>

namespace checkpoint_tests {

namespace {

using distgrad::checkpoint;
using distgrad::this_worker;
using rig::leaf;
using rig::Workers;

bool close(at::Tensor const& a, at::Tensor const& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.sizes() == b.sizes() && a.detach().allclose(b.detach(), 1e-5, 1e-6);
}

// A leaf of the worker that runs a function: one per worker, made anew for each test case.
std::map<std::string, at::Tensor> weights;
at::Tensor weight() { return weights.at(this_worker().name()); }
void make_weights(Workers const& w) {
  weights.clear();
  for (std::size_t i = 0; i < w.size(); ++i) {
    weights[w[i].name()] = leaf(10 + static_cast<int>(i));
  }
}
at::Tensor gradient_on(Workers const& w, std::size_t rank, distgrad::Context const& ctx) {
  return w[rank].context_part(ctx.id())->gradient(weights.at(w[rank].name()));
}

std::atomic<int> runs = 0;

at::Tensor formula(at::Tensor const& x, at::Tensor const& w) { return x.mm(w).tanh().mul(x); }
at::Tensor block(at::Tensor const& x) {
  ++runs;
  return formula(x, weight());
}

// --- gradients -----------------------------------------------------------------------------------

void one_block(Workers const& w, distgrad::BackwardMode mode) {
  auto const x = leaf(1);
  runs = 0;
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<checkpoint<block>>("worker1", x);
  CHECK(runs == 1);
  CHECK(y.requires_grad());
  ctx.backward({y.sum()}, {.mode = mode});
  CHECK(runs == 2);
  auto const& there = weights.at("worker1");
  auto const expected = rig::local_gradients(formula(x, there).sum(), {x, there});
  CHECK(close(ctx.gradient(x), expected[0]));
  CHECK(close(gradient_on(w, 1, ctx), expected[1]));
  CHECK_FALSE(there.grad().defined());
}

void chain(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<checkpoint<block>>("worker1", x.mul(2));
  auto const z = w[0].rpc_sync<checkpoint<block>>("worker2", y);
  auto const last = w[0].rpc_sync<checkpoint<block>>("worker1", z.add(y));
  ctx.backward({last.sum()});
  auto const &w1 = weights.at("worker1"), &w2 = weights.at("worker2");
  auto const local_y = formula(x.mul(2), w1);
  auto const root = formula(formula(local_y, w2).add(local_y), w1).sum();
  auto const expected = rig::local_gradients(root, {x, w1, w2});
  CHECK(close(ctx.gradient(x), expected[0]));
  CHECK(close(gradient_on(w, 1, ctx), expected[1]));
  CHECK(close(gradient_on(w, 2, ctx), expected[2]));
}

at::Tensor calls_another(at::Tensor const& x) {
  auto const there = this_worker().rpc_sync<block>("worker2", x.mul(3));
  return formula(there, weight()).add(x);
}
at::Tensor calls_another_locally(at::Tensor const& x, at::Tensor const& w1, at::Tensor const& w2) {
  return formula(formula(x.mul(3), w2), w1).add(x);
}

void call_inside(Workers const& w) {
  auto const x = leaf(1);
  runs = 0;
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<checkpoint<calls_another>>("worker1", x);
  CHECK(runs == 1);
  CHECK_FALSE(w[2].has_context(ctx.id()));
  ctx.backward({y.sum()});
  CHECK(runs == 2);
  auto const &w1 = weights.at("worker1"), &w2 = weights.at("worker2");
  auto const expected = rig::local_gradients(calls_another_locally(x, w1, w2).sum(), {x, w1, w2});
  CHECK(close(ctx.gradient(x), expected[0]));
  CHECK(close(gradient_on(w, 1, ctx), expected[1]));
  CHECK(close(gradient_on(w, 2, ctx), expected[2]));
}

// The call goes back to the worker that waits in backward, and to the one that runs it.
at::Tensor calls_back(at::Tensor const& x) {
  auto const there = this_worker().rpc_sync<block>(distgrad::caller().name, x);
  return formula(this_worker().rpc_sync<block>(this_worker().name(), there), weight());
}
void call_back_inside(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<checkpoint<calls_back>>("worker1", x).sum()});
  auto const &w0 = weights.at("worker0"), &w1 = weights.at("worker1");
  auto const root = formula(formula(formula(x, w0), w1), w1).sum();
  auto const expected = rig::local_gradients(root, {x, w0, w1});
  CHECK(close(ctx.gradient(x), expected[0]));
  CHECK(close(gradient_on(w, 0, ctx), expected[1]));
  CHECK(close(gradient_on(w, 1, ctx), expected[2]));
}

at::Tensor checkpoints_inside(at::Tensor const& x) {
  auto const here = checkpoint<block>(x);
  return this_worker().rpc_sync<checkpoint<block>>("worker2", here).add(x);
}
void checkpoint_inside(Workers const& w) {
  auto const x = leaf(1);
  runs = 0;
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<checkpoint<checkpoints_inside>>("worker1", x).sum()});
  CHECK(runs == 6);  // twice in the function's runs, and once more for the second of these
  auto const &w1 = weights.at("worker1"), &w2 = weights.at("worker2");
  auto const expected = rig::local_gradients(formula(formula(x, w1), w2).add(x).sum(), {x, w1, w2});
  CHECK(close(ctx.gradient(x), expected[0]));
  CHECK(close(gradient_on(w, 1, ctx), expected[1]));
  CHECK(close(gradient_on(w, 2, ctx), expected[2]));
}

void several_passes(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<checkpoint<calls_another>>("worker1", x).sum();
  ctx.backward({root}, {.retain_graph = true});
  auto const first = ctx.gradient(x).clone();
  auto const first_there = gradient_on(w, 2, ctx).clone();
  ctx.backward({root});
  CHECK(close(ctx.gradient(x), first.mul(2)));
  CHECK(close(gradient_on(w, 2, ctx), first_there.mul(2)));
  auto const text = rig::text_of([&] { ctx.backward({root}); });
  CHECK(text.find("second time") != std::string::npos);
}

void into_grad(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<checkpoint<calls_another>>("worker1", x).sum();
  ctx.backward({root}, {.accumulate_grad = true});
  auto const &w1 = weights.at("worker1"), &w2 = weights.at("worker2");
  auto const expected = rig::local_gradients(calls_another_locally(x, w1, w2).sum(), {x, w1, w2});
  CHECK(close(x.grad(), expected[0]));
  CHECK(close(w1.grad(), expected[1]));
  CHECK(close(w2.grad(), expected[2]));
  CHECK_FALSE(ctx.gradient(x).defined());
}

void only_inputs(Workers const& w) {
  auto const x = leaf(1), other = leaf(2);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<checkpoint<calls_another>>("worker1", x.mul(other)).sum();
  ctx.backward({root}, {.retain_graph = true, .inputs = {x}});
  auto const &w1 = weights.at("worker1"), &w2 = weights.at("worker2");
  auto const expected =
      rig::local_gradients(calls_another_locally(x.mul(other), w1, w2).sum(), {x, other});
  CHECK(close(ctx.gradient(x), expected[0]));
  CHECK_FALSE(ctx.gradient(other).defined());
  CHECK_FALSE(gradient_on(w, 1, ctx).defined());
  CHECK_FALSE(gradient_on(w, 2, ctx).defined());
  CHECK(close(ctx.grad({root}, {other})[0], expected[1]));
}

at::Tensor kept;
at::Tensor uses_kept(at::Tensor const& x) { return x.mul(kept).sin(); }

void input_found_inside(Workers const& w) {
  auto const x = leaf(1);
  kept = leaf(2);
  auto ctx = w[0].context();
  auto const y = checkpoint<uses_kept>(x);
  auto const root = w[0].rpc_sync<block>("worker1", y).sum();
  auto const found = ctx.grad({root}, {kept});
  auto const expected =
      rig::local_gradients(formula(uses_kept(x), weights.at("worker1")).sum(), {kept});
  CHECK(close(found[0], expected[0]));
  CHECK_FALSE(ctx.gradient(x).defined());
}

// The second run calls back to the worker that waits for this gradient.
void input_found_by_a_call(Workers const& w) {
  auto const x = leaf(1);
  auto const& w0 = weights.at("worker0");
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<checkpoint<calls_back>>("worker1", x).sum();
  auto const found = ctx.grad({root}, {w0, x}, {.retain_graph = true});
  auto const& w1 = weights.at("worker1");
  auto const expected =
      rig::local_gradients(formula(formula(formula(x, w0), w1), w1).sum(), {w0, x});
  CHECK(close(found[0], expected[0]));
  CHECK(close(found[1], expected[1]));
  CHECK_FALSE(ctx.gradient(w0).defined());
  ctx.backward({root}, {.inputs = {w0}});
  CHECK(close(ctx.gradient(w0), expected[0]));
  CHECK_FALSE(ctx.gradient(x).defined());
}

void global_commit(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<checkpoint<block>>("worker1", x).sum();
  ctx.backward({y}, {.commit = distgrad::GradientCommit::global});
  auto const& there = weights.at("worker1");
  auto const expected = rig::local_gradients(formula(x, there).sum(), {x, there});
  CHECK(close(ctx.gradient(x), expected[0]));
  CHECK(close(gradient_on(w, 1, ctx), expected[1]));

  auto const further = w[0].rpc_sync<checkpoint<calls_another>>("worker1", x).sum();
  auto const text =
      rig::text_of([&] { ctx.backward({further}, {.commit = distgrad::GradientCommit::global}); });
  CHECK(text.find("GradientCommit::local") != std::string::npos);
  CHECK_FALSE(gradient_on(w, 2, ctx).defined());
}

struct Fails : torch::autograd::Function<Fails> {
  static at::Tensor forward(torch::autograd::AutogradContext*, at::Tensor const& x) {
    return x.mul(1);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    throw std::runtime_error("no gradient today");
  }
};

// Worker 2 has a part of its own in the pass, and one for the second run.
void held_back_until_the_commit(Workers const& w) {
  auto const x = leaf(1);
  distgrad::BackwardOptions const global{.retain_graph = true,
                                         .commit = distgrad::GradientCommit::global};
  auto const &w1 = weights.at("worker1"), &w2 = weights.at("worker2");
  auto ctx = w[0].context();
  auto const fails = Fails::apply(x);
  auto const y = w[0].rpc_sync<checkpoint<calls_another>>("worker1", fails);
  auto const z = w[0].rpc_sync<block>("worker2", fails);
  auto const text = rig::text_of([&] { ctx.backward({y.add(z).sum()}, global); });
  CHECK(text.find("no gradient today") != std::string::npos);
  CHECK_FALSE(gradient_on(w, 1, ctx).defined());
  CHECK_FALSE(gradient_on(w, 2, ctx).defined());

  auto const good = w[0].rpc_sync<checkpoint<calls_another>>("worker1", x);
  ctx.backward({good.add(w[0].rpc_sync<block>("worker2", x)).sum()}, global);
  auto const root = calls_another_locally(x, w1, w2).add(formula(x, w2)).sum();
  auto const expected = rig::local_gradients(root, {x, w1, w2});
  CHECK(close(ctx.gradient(x), expected[0]));
  CHECK(close(gradient_on(w, 1, ctx), expected[1]));
  CHECK(close(gradient_on(w, 2, ctx), expected[2]));
}

void second_derivatives(Workers const& w) {
  auto const x = leaf(1);
  auto const &w1 = weights.at("worker1"), &w2 = weights.at("worker2");
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<checkpoint<calls_another>>("worker1", x);
  auto const g = ctx.grad({y.mul(y).sum()}, {x}, {.create_graph = true})[0];
  CHECK(g.requires_grad());
  ctx.backward({g.mul(g).sum()});

  auto const local_y = calls_another_locally(x, w1, w2);
  auto const local_g = torch::autograd::grad({local_y.mul(local_y).sum()}, {x}, {}, true, true)[0];
  CHECK(close(g, local_g));
  auto const expected = rig::local_gradients(local_g.mul(local_g).sum(), {x, w1, w2});
  CHECK(close(ctx.gradient(x), expected[0]));
  CHECK(close(gradient_on(w, 1, ctx), expected[1]));
  CHECK(close(gradient_on(w, 2, ctx), expected[2]));
}

// --- what is kept between the runs ---------------------------------------------------------------

std::atomic<int> alive = 0;
// Counts storages, which live as long as a graph holds them.
at::Tensor counted(at::Tensor const& x) {
  auto* const data = new float[9];
  ++alive;
  auto const t = at::from_blob(data, {3, 3}, [data](void*) {
    --alive;
    delete[] data;
  });
  {
    at::NoGradGuard const off;
    t.copy_(x);
  }
  return t;
}
at::Tensor holds_activations(at::Tensor const& x) {
  return x.mul(counted(x)).mul(counted(x)).mul(2);
}
at::Tensor holds_activations_elsewhere(at::Tensor const& x) {
  return this_worker().rpc_sync<holds_activations>("worker2", x);
}

template <auto F>
void activations(Workers const& w) {
  alive = 0;
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const kept_graph = w[0].rpc_sync<F>("worker1", x);
  CHECK(alive == 2);
  auto const y = w[0].rpc_sync<checkpoint<F>>("worker1", x);
  CHECK(rig::eventually([] { return alive == 2; }));  // the answer leaves first
  ctx.backward({kept_graph.add(y).sum()});
  CHECK(rig::eventually([] { return alive == 0; }));
}

at::Tensor drops_out(at::Tensor const& x) { return at::dropout(x.mul(weight()), 0.5, true); }

void same_random_numbers(Workers const& w) {
  auto const x = at::ones({30, 30}).set_requires_grad(true);
  weights["worker1"] = at::ones({30, 30}).set_requires_grad(true);
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<checkpoint<drops_out>>("worker1", x);
  auto const between = at::rand({4});
  ctx.backward({y.sum()});
  CHECK(rig::same(ctx.gradient(x), y));  // 0 or 2, where y is
  CHECK(rig::same(gradient_on(w, 1, ctx), y));
  CHECK_FALSE(at::rand({4}).equal(between));
}

at::Tensor who_called(at::Tensor const& x) {
  return x.mul(int(distgrad::caller().id.value) + 2).mul(this_worker().rank() + 2);
}
void same_caller(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[3].context();
  ctx.backward({w[3].rpc_sync<checkpoint<who_called>>("worker1", x).sum()});
  CHECK(rig::same(ctx.gradient(x), at::ones({3, 3}).mul(15)));
}

// --- arguments and results -----------------------------------------------------------------------

struct Batch {
  at::Tensor values;
  std::vector<at::Tensor> more;
  std::optional<at::Tensor> none;
  int factor = 1;
};
struct Results {
  at::Tensor product, index, unused;
  std::map<std::string, at::Tensor> named;
  int count = 0;
};
Results many(Batch const& batch, double scale, std::string const& key, at::Tensor numbers) {
  auto const product = batch.values.mul(batch.more.at(0)).mul(batch.factor).mul(scale);
  return {product,
          numbers.add(1),
          batch.values.detach().mul(2),
          {{key, batch.more.at(1).mul(weight())}, {"undefined", at::Tensor()}},
          7};
}

void many_values(Workers const& w) {
  auto const x = leaf(1), a = leaf(2), b = leaf(3);
  auto ctx = w[0].context();
  auto const results = w[0].rpc_sync<checkpoint<many>>("worker1", Batch{x.mul(2), {a, b}, {}, 3},
                                                       0.5, "key", at::ones({2}, at::kLong));
  CHECK(results.count == 7);
  CHECK(results.index.equal(at::ones({2}, at::kLong).mul(2)));
  CHECK_FALSE(results.index.requires_grad());
  CHECK_FALSE(results.named.at("undefined").defined());
  // The constant result says it needs a gradient, and nothing comes of it.
  ctx.backward({results.product.sum(), results.named.at("key").sum(), results.unused.sum()});
  CHECK(close(ctx.gradient(x), a.mul(3)));
  CHECK(close(ctx.gradient(a), x.mul(3)));
  CHECK(close(ctx.gradient(b), weights.at("worker1")));
  CHECK(close(gradient_on(w, 1, ctx), b));
}

void one_result_used(Workers const& w) {
  auto const x = leaf(1), a = leaf(2), b = leaf(3);
  auto ctx = w[0].context();
  auto const results = w[0].rpc_sync<checkpoint<many>>("worker1", Batch{x, {a, b}, {}, 2}, 1.,
                                                       "key", at::ones({2}, at::kLong));
  ctx.backward({results.named.at("key").sum()});
  CHECK(close(ctx.gradient(b), weights.at("worker1")));
  CHECK_FALSE(ctx.gradient(x).defined());
  CHECK_FALSE(ctx.gradient(a).defined());
}

// No argument leads anywhere; the function's own leaf does.
at::Tensor only_own_leaf(int n) { return weight().mul(n); }
at::Tensor returns_its_argument(at::Tensor const& x) { return x; }
void odd_ends(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const own = w[0].rpc_sync<checkpoint<only_own_leaf>>("worker1", 3);
  auto const same = w[0].rpc_sync<checkpoint<returns_its_argument>>("worker2", x);
  auto const constant = w[0].rpc_sync<checkpoint<block>>("worker3", at::ones({3, 3}));
  ctx.backward({own.add(same).add(constant).sum()});
  CHECK(close(ctx.gradient(x), at::ones({3, 3})));
  CHECK(close(gradient_on(w, 1, ctx), at::ones({3, 3}).mul(3)));
  CHECK(gradient_on(w, 3, ctx).defined());
}

struct Layer {
  explicit Layer(int seed) : w(leaf(seed)) {}
  at::Tensor forward(at::Tensor const& x) const { return formula(x, w); }
  at::Tensor w;
};
Layer make_layer(int seed) { return Layer(seed); }
at::Tensor layer_weight(distgrad::RRef<Layer> const& layer) { return layer.local_value().w; }

void member_function(Workers const& w) {
  auto const x = leaf(1);
  auto const layer = w[0].remote<make_layer>("worker1", 5);
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<checkpoint<&Layer::forward>>("worker1", layer, x);
  auto const there = w[0].rpc_sync<layer_weight>("worker1", layer);
  ctx.backward({y.sum().add(there.sum())});
  auto const local = leaf(5);
  auto const expected = rig::local_gradients(formula(x, local).sum(), {x, local});
  CHECK(close(ctx.gradient(x), expected[0]));
  auto const on_owner = w[1].context_part(ctx.id())->gradients();
  REQUIRE(on_owner.size() == 1);
  CHECK(close(on_owner[0].gradient, expected[1].add(1)));
}

void closure(Workers const& w) {
  constexpr auto twice = [](at::Tensor const& x) { return x.mul(weight()).mul(2); };
  auto const x = leaf(1);
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<checkpoint<twice>>("worker1", x).sum()});
  CHECK(close(ctx.gradient(x), weights.at("worker1").mul(2)));
}

// --- what goes wrong -----------------------------------------------------------------------------

std::atomic<bool> is_broken = false;
at::Tensor breaks(at::Tensor const& x) {
  if (is_broken) throw std::runtime_error("the disk is full");
  return x.mul(2);
}
at::Tensor breaks_elsewhere(at::Tensor const& x) {
  return this_worker()
      .rpc_sync<block>("worker2", x)
      .add(this_worker().rpc_sync<breaks>("worker3", x));
}

template <auto F>
void broken_second_run(Workers const& w) {
  auto const x = leaf(1);
  is_broken = false;
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<checkpoint<F>>("worker1", x).sum();
  is_broken = true;
  try {
    ctx.backward({y}, {.retain_graph = true});
    FAIL("the second run was not noticed to fail");
  } catch (distgrad::RemoteError const& error) {
    CHECK(error.worker() == "worker1");
    CHECK(error.function().starts_with("CheckpointBackward<"));
    CHECK(std::string(error.what()).find("the disk is full") != std::string::npos);
  }
  is_broken = false;
  ctx.backward({y});  // nothing is left of the failed one
  CHECK(ctx.gradient(x).defined());
}

at::Tensor fails_in_backward(at::Tensor const& x) { return Fails::apply(x); }
at::Tensor fails_in_backward_elsewhere(at::Tensor const& x) {
  return this_worker().rpc_sync<fails_in_backward>("worker2", x);
}
void failing_node(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<checkpoint<fails_in_backward_elsewhere>>("worker1", x).sum();
  auto const text = rig::text_of([&] { ctx.backward({y}); });
  CHECK(text.find("no gradient today") != std::string::npos);
  CHECK(text.find("worker1") != std::string::npos);
}

at::Tensor changes_shape(at::Tensor const& x) { return is_broken ? x.sum() : x.mul(2); }
void other_results(Workers const& w) {
  is_broken = false;
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<checkpoint<changes_shape>>("worker1", leaf(1)).sum();
  is_broken = true;
  auto const text = rig::text_of([&] { ctx.backward({y}); });
  CHECK(text.find("the same each time") != std::string::npos);
}

at::Tensor received;
at::Tensor remembers(at::Tensor const& x) {
  received = x;
  return checkpoint<block>(x);
}
void changed_argument(Workers const& w) {
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<remembers>("worker1", leaf(1)).sum();
  {
    at::NoGradGuard const off;
    received.mul_(2);
  }
  received = at::Tensor();
  auto const text = rig::text_of([&] { ctx.backward({y}); });
  CHECK(text.find("modified by an inplace operation") != std::string::npos);
}

std::atomic<bool> may_end = true;
at::Tensor waits(at::Tensor const& x) {
  rig::eventually([] { return may_end.load(); });
  return x.mul(weight());
}
at::Tensor waits_elsewhere(at::Tensor const& x) {
  return this_worker().rpc_sync<block>("worker2", x).add(waits(x));
}
void late_second_run(Workers const& w) {
  auto ctx = w[0].context();
  may_end = true;
  auto const y = w[0].rpc_sync<checkpoint<waits_elsewhere>>("worker1", leaf(1)).sum();
  may_end = false;
  CHECK(rig::error_of([&] { ctx.backward({y}, {.timeout = std::chrono::milliseconds(50)}); }) ==
        distgrad::errc::timeout);
  may_end = true;
  CHECK(rig::eventually([&] { return w[1].debug_info().backward_passes == 0; }));
  CHECK_FALSE(gradient_on(w, 2, ctx).defined());  // nothing began any more
}

struct WaitsInBackward : torch::autograd::Function<WaitsInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext*, at::Tensor const& x) {
    return x.mul(1);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list g) {
    rig::eventually([] { return may_end.load(); });
    return g;
  }
};
at::Tensor waits_in_backward(at::Tensor const& x) { return WaitsInBackward::apply(x); }
at::Tensor waits_in_backward_elsewhere(at::Tensor const& x) {
  return this_worker().rpc_sync<waits_in_backward>("worker2", x);
}
void stopped_with_the_pass(Workers const& w) {
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<checkpoint<waits_in_backward_elsewhere>>("worker1", leaf(1)).sum();
  may_end = false;
  CHECK(rig::error_of([&] { ctx.backward({y}, {.timeout = std::chrono::milliseconds(50)}); }) ==
        distgrad::errc::timeout);
  // Worker 1 does not wait for the node of worker 2 any more.
  CHECK(rig::eventually([&] { return w[1].debug_info().backward_passes == 0; },
                        std::chrono::seconds(20)));
  may_end = true;
  CHECK(rig::eventually([&] { return w[2].debug_info().backward_passes == 0; }));
}

// Two workers without threads of their own: a second run waits inside of what it waits for.
using InlineEngine = distgrad::DistEngine<distgrad::LoopbackTransport, distgrad::InlineQueues>;
void on_inline_workers() {
  rig::Cluster<2, InlineEngine> cluster;
  std::atomic<bool> ending = false;
  std::thread driver([&] {
    while (!ending)
      cluster[1].poll({.until = distgrad::Clock::now() + std::chrono::milliseconds(10)});
  });
  Workers const w(cluster);
  make_weights(w);
  call_back_inside(w);
  ending = true;
  driver.join();
}

// --- without workers -----------------------------------------------------------------------------

at::Tensor local_weight;
at::Tensor local_block(at::Tensor const& x) {
  ++runs;
  return formula(x, local_weight);
}
at::Tensor local_pair(at::Tensor const& x) { return checkpoint<local_block>(x).add(x); }

}  // namespace

#define ON_CLUSTER(name, ...)                          \
  TEST_CASE_TEMPLATE(name, Engine, DISTGRAD_ENGINES) { \
    rig::on_cluster<Engine>([](Workers const& w) {     \
      make_weights(w);                                 \
      __VA_ARGS__(w);                                  \
    });                                                \
  }

ON_CLUSTER("a checkpointed call has the gradients of the call, on both workers",
           [](Workers const& w) { one_block(w, distgrad::BackwardMode::smart); })
ON_CLUSTER("a checkpointed call is part of a FAST pass",
           [](Workers const& w) { one_block(w, distgrad::BackwardMode::fast); })
ON_CLUSTER("checkpointed calls follow one another", chain)
ON_CLUSTER("a checkpointed function calls another worker", call_inside)
ON_CLUSTER("a checkpointed function calls back", call_back_inside)
ON_CLUSTER("a checkpointed function calls checkpointed functions", checkpoint_inside)
ON_CLUSTER("passes follow one another until one lets go of the arguments", several_passes)
ON_CLUSTER("gradients of a second run are added to .grad where the pass says so", into_grad)
ON_CLUSTER("a restricted pass stays restricted in a second run", only_inputs)
ON_CLUSTER("a leaf found by a second run can be an input", input_found_inside)
ON_CLUSTER("a leaf found by a call of a second run can be an input", input_found_by_a_call)
ON_CLUSTER("a second run that stays on its worker commits with the pass", global_commit)
ON_CLUSTER("gradients of calls of a second run wait for the commit of the pass",
           held_back_until_the_commit)
ON_CLUSTER("a checkpointed function is differentiated twice", second_derivatives)
ON_CLUSTER("nothing of the first run is kept", activations<holds_activations>)
ON_CLUSTER("nothing of the first run is kept on workers it calls",
           activations<holds_activations_elsewhere>)
ON_CLUSTER("both runs draw the same random numbers", same_random_numbers)
ON_CLUSTER("both runs know who called", same_caller)
ON_CLUSTER("tensors are found wherever arguments and results hold them", many_values)
ON_CLUSTER("a result that is not used needs no gradient", one_result_used)
ON_CLUSTER("arguments may be no tensors, constants, or the result", odd_ends)
ON_CLUSTER("a member function is checkpointed", member_function)
ON_CLUSTER("a closure is checkpointed", closure)
ON_CLUSTER("an error of the second run reaches the initiator", broken_second_run<breaks>)
ON_CLUSTER("an error of a call of the second run reaches the initiator",
           broken_second_run<breaks_elsewhere>)
ON_CLUSTER("an error in the graph of the second run reaches the initiator", failing_node)
ON_CLUSTER("a second run that returns something else is an error", other_results)
ON_CLUSTER("a changed argument is an error", changed_argument)
ON_CLUSTER("a second run that takes too long ends with the pass", late_second_run)

ON_CLUSTER("the graph of a second run stops with the pass", stopped_with_the_pass)

TEST_CASE("a checkpointed function calls back to a worker without threads") { on_inline_workers(); }

TEST_CASE("checkpointed functions have names of their own") {
  CHECK(distgrad::detail::function_name<checkpoint<block>>() ==
        "distgrad::checkpoint<checkpoint_tests::{anonymous}::block>");
  CHECK(distgrad::detail::function_name<checkpoint<checkpoint<block>>>() ==
        "distgrad::checkpoint<distgrad::checkpoint<checkpoint_tests::{anonymous}::block>>");
  CHECK(distgrad::detail::function_name<checkpoint<&Layer::forward>>() ==
        "distgrad::checkpoint<checkpoint_tests::{anonymous}::Layer::forward>");
}

TEST_CASE("an ordinary backward runs a checkpointed function again") {
  auto const x = leaf(1);
  local_weight = leaf(2);
  runs = 0;
  auto const y = checkpoint<local_pair>(x.mul(2));
  CHECK(runs == 1);
  torch::autograd::backward({y.sum()}, {});
  CHECK(runs == 3);  // the inner one's third
  auto const expected =
      rig::local_gradients(formula(x.mul(2), local_weight).add(x.mul(2)).sum(), {x, local_weight});
  CHECK(close(x.grad(), expected[0]));
  CHECK(close(local_weight.grad(), expected[1]));
  CHECK_THROWS_WITH_AS(torch::autograd::backward({y.sum()}, {}), doctest::Contains("second time"),
                       std::exception);
}

TEST_CASE("an ordinary grad reaches arguments of a checkpointed function only") {
  auto const x = leaf(1);
  local_weight = leaf(2);
  auto const y = checkpoint<local_block>(x).sum();
  CHECK_THROWS_WITH_AS(torch::autograd::grad({y}, {x}, {}, true), doctest::Contains("arguments"),
                       std::exception);
  local_weight = leaf(2).detach();
  auto const z = checkpoint<local_block>(x).sum();
  auto const g = torch::autograd::grad({z}, {x}, {}, true, true)[0];
  auto const local_g =
      torch::autograd::grad({formula(x, local_weight).sum()}, {x}, {}, true, true)[0];
  CHECK(close(g, local_g));
  CHECK(close(torch::autograd::grad({g.mul(g).sum()}, {x})[0],
              torch::autograd::grad({local_g.mul(local_g).sum()}, {x})[0]));
}

TEST_CASE("without gradients a checkpointed function is the function") {
  at::NoGradGuard const off;
  local_weight = leaf(2);
  runs = 0;
  CHECK_FALSE(checkpoint<local_block>(leaf(1)).requires_grad());
  CHECK(runs == 1);
}

TEST_CASE("a second run of drawing functions leaves the random generator alone") {
  auto const x = leaf(1);
  constexpr auto draws = [](at::Tensor const& v) { return v.mul(at::rand({3, 3})); };
  auto const y = checkpoint<draws>(x);
  auto const drawn = y.detach().div(x.detach());
  auto const before = at::rand({2});
  torch::autograd::backward({y.sum()}, {});
  CHECK(close(x.grad(), drawn));
  CHECK_FALSE(at::rand({2}).equal(before));
}

}  // namespace checkpoint_tests
