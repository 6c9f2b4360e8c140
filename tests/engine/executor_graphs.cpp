// Every kind of graph: gradients bitwise equal to those of libtorch's own engine.
#include <distgrad/engine/executor.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <distgrad/engine/carrier.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace executor_graphs_tests {

namespace {

using distgrad::Executor;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

at::Tensor random(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::randn(sizes, type);
}
at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return random(sizes, type).requires_grad_();
}

bool same_bits(at::Tensor const& a, at::Tensor const& b) {
  if (a.is_sparse()) {
    auto const left = a.coalesce(), right = b.coalesce();
    return left.indices().equal(right.indices()) && same_bits(left.values(), right.values());
  }
  auto const flat = [](at::Tensor const& t) {
    at::Tensor const real = t.is_complex() ? at::view_as_real(t.resolve_conj()) : t;
    return real.contiguous().view(-1).view(at::kByte);
  };
  return a.sizes() == b.sizes() && a.strides() == b.strides() && flat(a).equal(flat(b));
}

void check_same(at::Tensor const& ours, at::Tensor const& theirs) {
  REQUIRE(ours.defined() == theirs.defined());
  if (!ours.defined()) return;
  CHECK((ours.scalar_type() == theirs.scalar_type()));
  REQUIRE((ours.layout() == theirs.layout()));
  CHECK(same_bits(ours, theirs));
}

struct Graph {
  variable_list roots;
  variable_list leaves;
  variable_list gradients = {};  // of the roots; missing: ones
};

void run(Executor& executor, Graph const& graph) {
  for (std::size_t i = 0; i < graph.roots.size(); ++i) {
    executor.add_root(graph.roots[i],
                      i < graph.gradients.size() ? graph.gradients[i] : at::Tensor());
  }
  distgrad::run_in_carrier(true, false, [&] { executor.run_ready(); });
  CHECK(executor.is_complete());
  CHECK(executor.waiting() == 0);
  CHECK(executor.partial() == 0);
}

// Ours first, then libtorch's on the very same nodes.
void compare(Graph const& graph) {
  Executor executor({.retain_graph = true});
  run(executor, graph);
  for (auto const& variable : graph.leaves) REQUIRE(!variable.grad().defined());
  torch::autograd::backward(graph.roots, graph.gradients, /*retain_graph=*/true);
  for (auto const& variable : graph.leaves) {
    check_same(executor.gradients().find(variable), variable.grad());
  }
}

struct TwoOutputs : torch::autograd::Function<TwoOutputs> {
  static variable_list forward(AutogradContext* context, Variable a, Variable b) {
    context->save_for_backward({a, b});
    return {a.mul(b), a.add(b)};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto const saved = context->get_saved_variables();
    return {gradients[0].mul(saved[1]).add(gradients[1]), at::Tensor()};  // nothing for b
  }
};

// Returns whatever the test asks for.
struct Custom : torch::autograd::Function<Custom> {
  static inline thread_local std::function<variable_list(at::Tensor)> answer;
  static Variable forward(AutogradContext*, Variable a, Variable b) { return a.add(b.sum()); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return answer(std::move(gradients[0]));
  }
};

}  // namespace

TEST_CASE("a multi-layer perceptron gets libtorch's gradients") {
  auto const w0 = leaf({8, 4}), b0 = leaf({8}), w1 = leaf({3, 8}), b1 = leaf({3});
  auto const x = random({5, 4});
  auto const y = at::linear(at::relu(at::linear(x, w0, b0)), w1, b1);
  compare({{at::log_softmax(y, 1).sum()}, {w0, b0, w1, b1}});
}

TEST_CASE("convolution, batch normalisation and pooling get libtorch's gradients") {
  auto const w = leaf({4, 3, 3, 3}), gamma = leaf({4}), beta = leaf({4});
  auto const y = at::conv2d(random({2, 3, 8, 8}), w);
  auto const n = at::batch_norm(y, gamma, beta, {}, {}, true, 0.1, 1e-5, false);
  compare({{at::max_pool2d(at::relu(n), {2, 2}).pow(2).mean()}, {w, gamma, beta}});
}

TEST_CASE("a channels_last weight gets a gradient with its strides") {
  auto const w = random({4, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  compare({{at::conv2d(random({2, 3, 8, 8}), w).sum()}, {w}});
}

TEST_CASE("a recurrent network gets libtorch's gradients") {
  std::vector<at::Tensor> weights{leaf({12, 5}), leaf({12, 3}), leaf({12}), leaf({12})};
  auto const h = leaf({1, 2, 3}), c = leaf({1, 2, 3});
  auto const result =
      at::lstm(random({4, 2, 5}), {h, c}, weights, true, 1, 0.0, true, false, false);
  variable_list leaves = weights;
  leaves.insert(leaves.end(), {h, c});
  compare({{std::get<0>(result).sum().add(std::get<2>(result).sum())}, leaves});
}

TEST_CASE("a shared sub-graph sums its eight uses in libtorch's order") {
  auto const x = leaf({64});
  auto const shared = x.sin();
  at::Tensor sum = shared.mul(1.1);
  for (int i = 2; i <= 8; ++i) sum = sum.add(shared.mul(i * 0.37).cos());
  compare({{sum.sum()}, {x}});
}

TEST_CASE("one leaf used on both sides of an operator") {
  auto const x = leaf({4, 4});
  compare({{x.mul(x).add(x.matmul(x)).sum()}, {x}});
}

TEST_CASE("a leaf may be a root") {
  auto const x = leaf({3});
  compare({{x}, {x}, {random({3})}});
}

TEST_CASE("repeated roots and roots below other roots wait for all their gradients") {
  auto const x = leaf({3});
  auto const inner = x.exp();
  auto const outer = inner.mul(inner);
  compare({{inner, outer, inner, x}, {x}, {random({3}), random({3}), random({3}), random({3})}});
}

TEST_CASE("a sparse embedding used twice sums sparse gradients") {
  for (int round = 0; round < 50; ++round) {  // whether the order of a sum shows depends on values
    auto const table = leaf({10, 4});
    auto const first = at::embedding(table, at::tensor({1, 2, 2, 7}), -1, false, true);
    auto const second = at::embedding(table, at::tensor({2, 9}), -1, false, true);
    compare({{first.sum().add(second.pow(2).sum())}, {table}});
  }
}

TEST_CASE("sparse and dense gradients of one variable sum to a dense one") {
  auto const table = leaf({10, 4});
  for (bool dense_first : {true, false}) {
    table.mutable_grad() = at::Tensor();
    auto const sparse = [&] {
      return at::embedding(table, at::tensor({1, 2, 2}), -1, false, true).sum();
    };
    auto const dense = [&] { return table.mul(random({10, 4})).sum(); };
    auto const a = dense_first ? dense() : sparse();
    auto const b = dense_first ? sparse() : dense();
    compare({{a.add(b)}, {table}});
  }
}

TEST_CASE("a custom function with an unused output and an undefined gradient") {
  auto const a = leaf({3}), b = leaf({3});
  auto const outputs = TwoOutputs::apply(a, b);
  compare({{outputs[0].sum()}, {a, b}});
}

TEST_CASE("an undefined gradient alone reaches the leaf as none") {
  auto const a = leaf({3}), b = leaf({2});
  Custom::answer = [](at::Tensor) { return variable_list{{}, {}}; };
  compare({{Custom::apply(a, b).sum()}, {a, b}});
}

TEST_CASE("a gradient of broadcast shape is reduced to the input's") {
  auto const a = leaf({3}), b = leaf({1});
  Custom::answer = [](at::Tensor gradient) { return variable_list{gradient, gradient}; };
  compare({{Custom::apply(a, b)}, {a, b}, {random({3})}});
}

TEST_CASE("a gradient of another dtype is cast to the input's") {
  auto const a = leaf({3}), b = leaf({3}, at::kDouble);
  Custom::answer = [](at::Tensor g) { return variable_list{g.to(at::kDouble), g.to(at::kHalf)}; };
  compare({{Custom::apply(a, b.to(at::kFloat)).sum()}, {a, b}});
}

TEST_CASE("mixed dtypes in one graph") {
  auto const a = leaf({3}), b = leaf({3}, at::kDouble), c = leaf({3}, at::kBFloat16);
  compare({{a.mul(b).add(c.to(at::kFloat).exp()).sum()}, {a, b, c}});
}

TEST_CASE("gradients that share one storage are not written in place") {
  auto const a = leaf({4}), b = leaf({4});
  Custom::answer = [](at::Tensor g) {
    auto const both = at::stack({g, g.mul(2)});
    return variable_list{both.select(0, 0), both.select(0, 1)};
  };
  auto const x = a.mul(1), y = b.mul(1);
  auto const z = Custom::apply(x, y.view({2, 2}).view(4));
  compare({{z.add(x.mul(3)).add(y.mul(5)).add(z.sin())}, {a, b}, {random({4})}});
}

TEST_CASE("tensor hooks on leaves and inner tensors") {
  auto const a = leaf({3}), b = leaf({3});
  std::vector<std::string> calls;
  a.register_hook([&](at::Tensor const& g) { return calls.push_back("a0"), g.mul(2); });
  a.register_hook([&](at::Tensor const& g) { return calls.push_back("a1"), g.add(1); });
  auto const y = a.mul(b);
  y.register_hook([&](at::Tensor const& g) { return calls.push_back("y"), g.mul(3); });
  y.register_hook([&](at::Tensor const&) { calls.push_back("y looks"); });
  compare({{y.exp().sum()}, {a, b}});
  REQUIRE(calls.size() == 8);  // once by ours, once by libtorch's
  CHECK(std::vector<std::string>(calls.begin(), calls.begin() + 4) ==
        std::vector<std::string>(calls.begin() + 4, calls.end()));
}

TEST_CASE("an inner tensor that retains its gradient gets it") {
  auto const a = leaf({3});
  auto const y = a.mul(2);
  y.retain_grad();
  Executor executor({.retain_graph = true});
  run(executor, {{y.sin().sum()}, {a}});
  check_same(y.grad(), y.cos());
}

TEST_CASE("transposed, sliced, selected, permuted, diagonal and unfolded views") {
  auto const a = leaf({6, 6});
  auto const sum = a.t().slice(0, 1, 5).matmul(a).sum().add(a.select(1, 2).sin().sum());
  compare({{sum.add(a.view({2, 3, 6}).permute({2, 0, 1}).exp().sum())
                .add(a.diagonal().cos().sum())
                .add(a.unfold(0, 3, 2).pow(2).sum())},
           {a}});
}

TEST_CASE("operations in place, on a tensor and through its view") {
  auto const a = leaf({4}), b = leaf({2});
  auto x = a.mul(2);
  x.mul_(a).add_(1);
  x.slice(0, 0, 2).mul_(b);
  compare({{x.sin().sum()}, {a, b}});
}

TEST_CASE("a copy into a slice") {
  auto const a = leaf({4, 4}), b = leaf({4});
  auto x = a.mul(1);
  x.select(0, 1).copy_(b.exp());
  x.slice(1, 2, 4).fill_(2);
  compare({{x.pow(2).sum()}, {a, b}});
}

TEST_CASE("nodes with several outputs: split, unbind and max") {
  auto const a = leaf({4, 6});
  auto const parts = a.split(2, 1);
  auto const rows = a.unbind(0);
  auto const largest = std::get<0>(a.max(1));
  compare({{parts[0].mul(parts[2]).sum().add(rows[3].exp().sum()).add(largest.sum())}, {a}});
}

TEST_CASE("complex numbers") {
  auto const z = leaf({5}, at::kComplexFloat), w = leaf({5});
  compare({{at::real(z.mul(w).mul(z.conj()).add(z.exp())).sum()}, {z, w}});
}

TEST_CASE("a node that runs backward itself") {
  auto const a = leaf({3}), b = leaf({2});
  auto const inner = leaf({3});
  Custom::answer = [&](at::Tensor g) {
    c10::AutoGradMode const mode(true);
    auto const x = inner.detach().requires_grad_();
    auto const inside = torch::autograd::grad({x.mul(inner).exp().sum()}, {x, inner});
    return variable_list{g.mul(inside[0].detach()), inside[1].sum().detach().expand({2})};
  };
  compare({{Custom::apply(a, b).sin().sum()}, {a, b}});
}

TEST_CASE("a node that runs another executor") {
  auto const a = leaf({3}), b = leaf({2}), inner = leaf({3});
  Custom::answer = [&](at::Tensor g) {
    c10::AutoGradMode const mode(true);
    Executor nested({});
    nested.add_root(inner.exp().sum());
    nested.run_ready();
    return variable_list{g.mul(nested.gradients().find(inner)), {}};
  };
  compare({{Custom::apply(a, b).sin().sum()}, {a, b}});
}

TEST_CASE("gradients of gradients") {
  auto const a = leaf({3}), b = leaf({3});
  auto const y = a.mul(b).exp().mul(a).sum();
  Executor first({.retain_graph = true, .create_graph = true});
  first.add_root(y);
  first.run_ready();
  auto const ours = first.gradients().find(a);
  auto const theirs = torch::autograd::grad({y}, {a}, {}, true, true)[0];
  check_same(ours.detach(), theirs.detach());
  REQUIRE(ours.requires_grad());

  Executor second({.retain_graph = true});
  second.add_root(ours.pow(2).sum());
  second.run_ready();
  auto const expected = torch::autograd::grad({theirs.pow(2).sum()}, {a, b});
  check_same(second.gradients().find(a), expected[0]);
  check_same(second.gradients().find(b), expected[1]);
}

TEST_CASE("a chain of 300,000 nodes runs and is released") {
  auto const x = leaf({1});
  at::Tensor y = x;
  for (int i = 0; i < 300'000; ++i) y = y.add(1);
  {
    Executor executor({});
    executor.add_root(y);
    executor.run_ready();
    CHECK(executor.is_complete());
    CHECK(executor.size() == 300'001);
    CHECK(executor.gradients().find(x).item<float>() == 1);
    y.reset();
  }
}

}  // namespace executor_graphs_tests
