// What leaves get: hooks, and gradients kept or copied.
#include "workers.hpp"

#include <atomic>

#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <torch/csrc/autograd/custom_function.h>

namespace leaf_gradients_tests {

using namespace distgrad;
using namespace std::chrono_literals;
using rig::Layout;
using rig::leaf;
using rig::Mode;
using rig::same;
using rig::Workers;

namespace {

using torch::autograd::AutogradContext;

at::Tensor leafs_add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }
at::Tensor leafs_mul(at::Tensor const& x, at::Tensor const& y) { return x.mul(y); }

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
  auto const first = w[0].rpc_sync<leafs_add>("worker1", x, y);
  auto const second = w[0].rpc_sync<leafs_mul>("worker2", x, first);
  auto const root = second.sum();
  for (int pass = 1; pass <= 2; ++pass) {
    ctx.backward({root}, {.retain_graph = true});
    for (auto const& count : calls) CHECK(*count == pass);
  }
  CHECK(ctx.gradient(x).defined());
}

void leaf_hook(Workers const& w) {
  for (auto mode : {rig::Mode::local, rig::Mode::call, rig::Mode::remote}) {
    auto const x = leaf(1), y = leaf(2);
    x.register_hook([](at::Tensor const& gradient) { return gradient.mul(2); });
    auto ctx = w[0].context();
    auto const product = rig::run<leafs_mul>(w[0], mode, "worker1", x, y);
    ctx.backward({rig::run<leafs_add>(w[0], mode, "worker2", product, x).sum()});
    CHECK(same(ctx.gradient(x), y.detach().add(1).mul(2)));
    CHECK(same(ctx.gradient(y), x.detach()));
  }
}

void const* leafs_seen_data = nullptr;

/// Passes the gradient on and remembers where it lies.
struct Seen : torch::autograd::Function<Seen> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    auto gradient = gradients[0].clone();
    leafs_seen_data = gradient.data_ptr();
    return {std::move(gradient)};
  }
};
struct SeenTwice : torch::autograd::Function<SeenTwice> {
  static at::Tensor forward(AutogradContext*, at::Tensor x, at::Tensor y) { return x.add(y); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    auto gradient = gradients[0].clone();
    leafs_seen_data = gradient.data_ptr();
    return {gradient, gradient};
  }
};
struct Expanded : torch::autograd::Function<Expanded> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*, torch::autograd::variable_list) {
    auto one = at::ones({1});
    leafs_seen_data = one.data_ptr();
    return {one.expand({3, 3})};
  }
};

void dense_copies(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  {
    auto ctx = w[0].context();
    ctx.backward({Seen::apply(w[0].rpc_sync<leafs_add>("worker1", Seen::apply(x), y)).sum()});
    CHECK(ctx.gradient(x).data_ptr() == leafs_seen_data);  // nobody else wants it
  }
  {
    auto ctx = w[0].context();
    ctx.backward({SeenTwice::apply(x, y).sum()});
    CHECK(ctx.gradient(x).data_ptr() != leafs_seen_data);
    CHECK(ctx.gradient(y).data_ptr() != leafs_seen_data);
    CHECK(ctx.gradient(x).data_ptr() != ctx.gradient(y).data_ptr());
  }
  {
    auto ctx = w[0].context();
    ctx.backward({Expanded::apply(x).sum()});
    CHECK(ctx.gradient(x).data_ptr() != leafs_seen_data);
    CHECK(ctx.gradient(x).is_contiguous());
    CHECK(same(ctx.gradient(x), at::ones({3, 3})));
  }
}

at::Tensor sparse_rows(at::Tensor const& indices, at::Tensor const& values) {
  return at::sparse_coo_tensor(indices, values, {3, 3}, values.options().layout(at::kSparse));
}

enum class Parts { contiguous, strided_values, strided_indices };
Parts leafs_parts;
std::vector<at::Tensor> leafs_views;
bool leafs_keep_views = false;
void const* leafs_seen_indices = nullptr;

struct SparseGradient : torch::autograd::Function<SparseGradient> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*, torch::autograd::variable_list) {
    auto indices = at::arange(2, at::kLong).reshape({1, 2});
    auto values = at::ones({2, 3});
    if (leafs_parts == Parts::strided_values) values = at::ones({1, 3}).expand({2, 3});
    if (leafs_parts == Parts::strided_indices) {
      auto const each_twice = at::arange(2, at::kLong).reshape({1, 2, 1}).repeat({1, 1, 2});
      indices = each_twice.select(2, 0);
    }
    auto gradient = sparse_rows(indices, values);
    if (leafs_parts == Parts::strided_values) CHECK_FALSE(gradient._values().is_contiguous());
    if (leafs_parts == Parts::strided_indices) CHECK_FALSE(gradient._indices().is_contiguous());
    leafs_seen_data = gradient._values().data_ptr();
    leafs_seen_indices = gradient._indices().data_ptr();
    if (leafs_keep_views) leafs_views = {gradient._indices(), gradient._values()};
    return {std::move(gradient)};
  }
};

at::Tensor two_rows(double value) {
  return sparse_rows(at::arange(2, at::kLong).reshape({1, 2}), at::ones({2, 3}).mul(value));
}

void sparse_copies(Workers const& w, Parts parts, bool keep_views) {
  leafs_parts = parts;
  leafs_keep_views = keep_views;
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<leafs_add>("worker1", SparseGradient::apply(x), y).sum();
  ctx.backward({root}, {.retain_graph = true});
  REQUIRE(ctx.gradient(x).is_sparse());
  CHECK((ctx.gradient(x)._values().data_ptr() == leafs_seen_data) == (parts == Parts::contiguous));
  CHECK((ctx.gradient(x)._indices().data_ptr() == leafs_seen_indices) ==
        (parts == Parts::contiguous));
  CHECK(same(ctx.gradient(x), two_rows(1)));
  for (int i = 0; i < 10; ++i) ctx.backward({root}, {.retain_graph = true});
  CHECK(same(ctx.gradient(x), two_rows(11)));
  leafs_views.clear();
}

at::Tensor leafs_table() {
  return at::arange(20, at::kFloat).reshape({10, 2}).set_requires_grad(true);
}
at::Tensor look_up(RRef<at::Tensor> const& table, at::Tensor const& indices,
                   at::Tensor const& offsets) {
  return std::get<0>(at::embedding_bag(table.local_value(), indices, offsets, false, 0, true));
}

void embedding_bag(Workers const& w) {
  auto const table = w[0].remote<leafs_table>("worker1");
  auto const indices = at::arange(8, at::kLong).remainder(5);
  auto const offsets = at::arange(4, at::kLong).mul(2);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<look_up>("worker1", table, indices, offsets).sum();
  ctx.backward({root}, {.retain_graph = true});
  ctx.backward({root});
  CHECK(ctx.gradients().empty());

  auto const local = leafs_table();
  auto const bags = std::get<0>(at::embedding_bag(local, indices, offsets, false, 0, true));
  auto const once = rig::local_gradients(bags.sum(), {local})[0];
  auto const there = w[1].context_part(ctx.id())->gradients();
  REQUIRE(there.size() == 1);
  CHECK(there[0].gradient.is_sparse());
  CHECK(same(there[0].gradient, once.add(once)));
}

}  // namespace

TEST_CASE_TEMPLATE("[DA-59] a hook of a leaf changes its gradient once", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(leaf_hook);
}
TEST_CASE_TEMPLATE("[DA-60] post hooks of a leaf run once in each pass", Engine, DISTGRAD_ENGINES) {
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

}  // namespace leaf_gradients_tests
