// Backward passes: their arguments, several of them, their errors, and those that cannot end.
#include "workers.hpp"

#include <atomic>
#include <stdexcept>

#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/linalg_multi_dot.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

using namespace distgrad;
using namespace std::chrono_literals;
using rig::Layout;
using rig::leaf;
using rig::Mode;
using rig::same;
using rig::Workers;

namespace {

using torch::autograd::AutogradContext;

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
  check_error(errc::invalid_root,
              [&] { ctx.backward({x.mul(2)}, {.gradients = {at::ones({5, 7})}}); });
  check_error(errc::invalid_argument,
              [&] { ctx.backward({x.sum()}, {.gradients = {at::ones({}), at::ones({})}}); });
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
TEST_CASE_TEMPLATE("[DA-46] each leaf gets a gradient of its own dtype", Engine,
                   DISTGRAD_ENGINES) {
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

// --- hooks and copies ----------------------------------------------------------------------------

namespace {

struct CountingHook : torch::autograd::FunctionPostHook {
  explicit CountingHook(std::shared_ptr<std::atomic<int>> calls) : calls(std::move(calls)) {}
  torch::autograd::variable_list operator()(torch::autograd::variable_list const& outputs,
                                            torch::autograd::variable_list const&) override {
    ++*calls;
    return outputs;
  }
  std::shared_ptr<std::atomic<int>> calls;
};

void leaf_post_hooks(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto const node = torch::autograd::impl::grad_accumulator(x);
  std::vector<std::shared_ptr<std::atomic<int>>> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(std::make_shared<std::atomic<int>>(0));
    node->add_post_hook(std::make_unique<CountingHook>(calls.back()));
  }
  auto ctx = w[0].context();
  auto const first = w[0].rpc_sync<passes_add>("worker1", x, y);
  auto const second = w[0].rpc_sync<passes_mul>("worker2", x, first);
  auto const root = second.sum();
  for (int pass = 1; pass <= 2; ++pass) {
    ctx.backward({root}, {.retain_graph = true});
    for (auto const& count : calls) CHECK(*count == pass);
  }
  CHECK(ctx.gradient(x).defined());
}

void const* passes_seen_data = nullptr;

/// Passes the gradient on and remembers where it lies.
struct Seen : torch::autograd::Function<Seen> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    auto gradient = gradients[0].clone();
    passes_seen_data = gradient.data_ptr();
    return {std::move(gradient)};
  }
};
struct SeenTwice : torch::autograd::Function<SeenTwice> {
  static at::Tensor forward(AutogradContext*, at::Tensor x, at::Tensor y) { return x.add(y); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    auto gradient = gradients[0].clone();
    passes_seen_data = gradient.data_ptr();
    return {gradient, gradient};
  }
};
struct Expanded : torch::autograd::Function<Expanded> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list) {
    auto one = at::ones({1});
    passes_seen_data = one.data_ptr();
    return {one.expand({3, 3})};
  }
};

void dense_copies(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  {
    auto ctx = w[0].context();
    ctx.backward({Seen::apply(w[0].rpc_sync<passes_add>("worker1", Seen::apply(x), y)).sum()});
    CHECK(ctx.gradient(x).data_ptr() == passes_seen_data);  // nobody else wants it
  }
  {
    auto ctx = w[0].context();
    ctx.backward({SeenTwice::apply(x, y).sum()});
    CHECK(ctx.gradient(x).data_ptr() != passes_seen_data);
    CHECK(ctx.gradient(y).data_ptr() != passes_seen_data);
    CHECK(ctx.gradient(x).data_ptr() != ctx.gradient(y).data_ptr());
  }
  {
    auto ctx = w[0].context();
    ctx.backward({Expanded::apply(x).sum()});
    CHECK(ctx.gradient(x).data_ptr() != passes_seen_data);
    CHECK(ctx.gradient(x).is_contiguous());
    CHECK(same(ctx.gradient(x), at::ones({3, 3})));
  }
}

at::Tensor sparse_rows(at::Tensor const& indices, at::Tensor const& values) {
  return at::sparse_coo_tensor(indices, values, {3, 3}, values.options().layout(at::kSparse));
}

enum class Parts { contiguous, strided_values, strided_indices };
Parts passes_parts;
std::vector<at::Tensor> passes_views;
bool passes_keep_views = false;
void const* passes_seen_indices = nullptr;

struct SparseGradient : torch::autograd::Function<SparseGradient> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list) {
    auto indices = at::arange(2, at::kLong).reshape({1, 2});
    auto values = at::ones({2, 3});
    if (passes_parts == Parts::strided_values) values = at::ones({1, 3}).expand({2, 3});
    if (passes_parts == Parts::strided_indices) {
      auto const each_twice = at::arange(2, at::kLong).reshape({1, 2, 1}).repeat({1, 1, 2});
      indices = each_twice.select(2, 0);
    }
    auto gradient = sparse_rows(indices, values);
    if (passes_parts == Parts::strided_values) CHECK_FALSE(gradient._values().is_contiguous());
    if (passes_parts == Parts::strided_indices) CHECK_FALSE(gradient._indices().is_contiguous());
    passes_seen_data = gradient._values().data_ptr();
    passes_seen_indices = gradient._indices().data_ptr();
    if (passes_keep_views) passes_views = {gradient._indices(), gradient._values()};
    return {std::move(gradient)};
  }
};

at::Tensor two_rows(double value) {
  return sparse_rows(at::arange(2, at::kLong).reshape({1, 2}), at::ones({2, 3}).mul(value));
}

void sparse_copies(Workers const& w, Parts parts, bool keep_views) {
  passes_parts = parts;
  passes_keep_views = keep_views;
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<passes_add>("worker1", SparseGradient::apply(x), y).sum();
  ctx.backward({root}, {.retain_graph = true});
  REQUIRE(ctx.gradient(x).is_sparse());
  CHECK((ctx.gradient(x)._values().data_ptr() == passes_seen_data) ==
        (parts == Parts::contiguous));
  CHECK((ctx.gradient(x)._indices().data_ptr() == passes_seen_indices) ==
        (parts == Parts::contiguous));
  CHECK(same(ctx.gradient(x), two_rows(1)));
  for (int i = 0; i < 10; ++i) ctx.backward({root}, {.retain_graph = true});
  CHECK(same(ctx.gradient(x), two_rows(11)));
  passes_views.clear();
}

at::Tensor passes_table() {
  return at::arange(20, at::kFloat).reshape({10, 2}).set_requires_grad(true);
}
at::Tensor look_up(RRef<at::Tensor> const& table, at::Tensor const& indices,
                   at::Tensor const& offsets) {
  return std::get<0>(at::embedding_bag(table.local_value(), indices, offsets, false, 0, true));
}

void embedding_bag(Workers const& w) {
  auto const table = w[0].remote<passes_table>("worker1");
  auto const indices = at::arange(8, at::kLong).remainder(5);
  auto const offsets = at::arange(4, at::kLong).mul(2);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<look_up>("worker1", table, indices, offsets).sum();
  ctx.backward({root}, {.retain_graph = true});
  ctx.backward({root});
  CHECK(ctx.gradients().empty());

  auto const local = passes_table();
  auto const bags = std::get<0>(at::embedding_bag(local, indices, offsets, false, 0, true));
  auto const once = rig::local_gradients(bags.sum(), {local})[0];
  auto const there = w[1].context_part(ctx.id())->gradients();
  REQUIRE(there.size() == 1);
  CHECK(there[0].gradient.is_sparse());
  CHECK(same(there[0].gradient, once.add(once)));
}

}  // namespace

TEST_CASE_TEMPLATE("[DA-60] post hooks of a leaf run once in each pass", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(leaf_post_hooks);
}
TEST_CASE_TEMPLATE("[DA-61] a gradient nobody else has is kept, any other is copied", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(dense_copies);
}
TEST_CASE_TEMPLATE("[DA-62] a contiguous sparse gradient is kept, any other is copied", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) {
    sparse_copies(w, Parts::contiguous, false);
    sparse_copies(w, Parts::strided_values, false);
    sparse_copies(w, Parts::strided_indices, false);
  });
}
TEST_CASE_TEMPLATE("[DA-63] views of a sparse gradient do not make it copied", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { sparse_copies(w, Parts::contiguous, true); });
}
TEST_CASE_TEMPLATE("[DA-64] sparse gradients of a remote table accumulate on its owner", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(embedding_bag);
}

// --- errors --------------------------------------------------------------------------------------

namespace {

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
struct Report {
  int code = 0;
  std::string worker, node, text;
};
Report report_of(Context& ctx, at::Tensor const& root, BackwardOptions const& options = {}) {
  try {
    ctx.backward({root}, options);
  } catch (RemoteError const& e) {
    return {e.code().value(), e.worker(), e.function(), e.remote_text()};
  } catch (Error const& e) {
    return {e.code().value(), {}, {}, e.text()};
  }
  return {};
}

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

// --- passes that cannot end ----------------------------------------------------------------------

namespace {

at::Tensor first_of(at::Tensor const& x, at::Tensor const&) { return x.mul(2); }
at::Tensor forgets(at::Tensor const& x) { return x.detach().mul(2); }
at::Tensor uses_a_neighbour(at::Tensor const& x) {
  this_worker().rpc_sync<passes_add>("worker2", x, x);  // result not used
  return x.mul(3);
}

bool mentions(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
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
    w[0].rpc_sync<passes_add>("worker1", x, y);
    auto const report = report_of(ctx, x.mul(y).sum());
    CHECK(report.code == int(errc::pass_stuck));
    CHECK(mentions(report.text, message_to(w[0], ctx.id(), WorkerId{1}, 2)));
    CHECK(mentions(report.text, "worker 0 sent to worker 1"));
    CHECK(w[0].debug_info().backward_passes == 0);
    CHECK(ctx.gradients().empty());
  }
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<passes_mul>("worker1", x, y).sum()});
  rig::check_gradients(ctx, x.mul(y).sum(), {x, y});
}

// Other calls to the same worker are used, so it takes part, and waits, too.
void partly_used(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  w[0].rpc_sync<passes_add>("worker1", x, y);
  auto const report = report_of(ctx, w[0].rpc_sync<passes_mul>("worker1", x, y).sum());
  CHECK(report.code == int(errc::pass_stuck));
  CHECK(mentions(report.text, "worker 0 sent to worker 1"));
  CHECK(mentions(report.text, "worker 1 sent to worker 0"));
}

// The participant is done long before the watchdog looks.
void done_participant(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  CHECK_FALSE(w[0].rpc_sync<forgets>("worker1", x).requires_grad());
  auto const report = report_of(ctx, w[0].rpc_sync<passes_mul>("worker1", x, y).sum());
  CHECK(report.code == int(errc::pass_stuck));
  CHECK(mentions(report.text, message_to(w[0], ctx.id(), WorkerId{1}, 1)));
  CHECK_FALSE(mentions(report.text, message_to(w[0], ctx.id(), WorkerId{1}, 2)));
}

void unused_further_away(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const report = report_of(ctx, w[0].rpc_sync<uses_a_neighbour>("worker1", x).sum());
  CHECK(report.code == int(errc::pass_stuck));
  CHECK(mentions(report.text, message_to(w[1], ctx.id(), WorkerId{2}, 2)));
  CHECK(mentions(report.text, "worker 1 sent to worker 2"));
}

// An argument that has no influence gets no gradient, and nobody waits for one.
void unused_argument(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<first_of>("worker1", x, y).sum()});
  CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(2)));
  CHECK_FALSE(ctx.gradient(y).defined());
}

std::atomic<int> passes_waited{0};
std::atomic<bool> passes_open{false};

/// Takes its time in backward: fifty watchdog intervals, or until the test opens it.
struct Slow : torch::autograd::Function<Slow> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    auto const end = std::chrono::steady_clock::now() + 100ms;
    rig::eventually([&] { return std::chrono::steady_clock::now() > end; });
    ++passes_waited;
    return gradients;
  }
};
struct Gated : torch::autograd::Function<Gated> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    rig::eventually([] { return passes_open.load(); });
    return gradients;
  }
};
at::Tensor slow(at::Tensor const& x) { return Slow::apply(x); }
at::Tensor gated(at::Tensor const& x) { return Gated::apply(x); }

void slow_is_not_stuck(Workers const& w) {
  auto const x = leaf(1);
  passes_waited = 0;
  auto ctx = w[0].context();
  auto const there = w[0].rpc_sync<slow>("worker1", x);
  ctx.backward({w[0].rpc_sync<slow>("worker2", there).sum()});
  CHECK(passes_waited == 2);
  CHECK(same(ctx.gradient(x), at::ones({3, 3})));
}

void out_of_time(Workers const& w) {
  auto const x = leaf(1);
  passes_open = false;
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<gated>("worker1", x).sum();
  auto const report = report_of(ctx, root, {.retain_graph = true, .timeout = 50ms});
  passes_open = true;
  CHECK(report.code == int(errc::timeout));
  CHECK(mentions(report.text, "timeout"));
  CHECK_FALSE(ctx.gradient(x).defined());
  ctx.backward({root}, {.timeout = 60s});
  CHECK(same(ctx.gradient(x), at::ones({3, 3})));
}

}  // namespace

TEST_CASE_TEMPLATE("a pass that waits for an unused result ends and says for which message",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(unused_result, 20ms);
}
TEST_CASE_TEMPLATE("a pass is stuck though other results of the same worker are used", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(partly_used, 20ms);
}
TEST_CASE_TEMPLATE("a pass is stuck though every participant is done", Engine,
                   DISTGRAD_ENGINES) {
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
TEST_CASE_TEMPLATE("a pass ends at its timeout, and another may follow", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(out_of_time);
}
