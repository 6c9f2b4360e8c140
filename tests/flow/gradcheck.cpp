// Operators that run on another worker: their gradients, as a pass over both workers computes them,
// against central differences of the operator itself, in float64.
#include "workers.hpp"

#include <functional>
#include <string>

#include <ATen/ops/addmm.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace gradcheck_tests {

using namespace distgrad;
using rig::Workers;

namespace {

using Tensors = std::vector<at::Tensor>;

/// Of float64, its elements all different, between -1 and 1, and none of them near 0, where some
/// operators bend.
at::Tensor values(at::IntArrayRef sizes, int seed) {
  std::int64_t count = 1;
  for (auto size : sizes) count *= size;
  auto const raw = at::arange(count, at::kDouble).mul(1.7).add(seed).sin();
  return raw.mul(0.9).add(raw.sign().mul(0.1)).reshape(sizes);
}
at::Tensor positive(at::IntArrayRef sizes, int seed) { return values(sizes, seed).abs().add(0.2); }

at::Tensor indices(std::initializer_list<std::int64_t> list) {
  auto all = at::zeros({std::int64_t(list.size())}, at::kLong);
  std::int64_t at = 0;
  for (auto index : list) all.data_ptr<std::int64_t>()[at++] = index;
  return all;
}

struct Operator {
  std::string name;
  Tensors inputs;
  std::function<at::Tensor(Tensors const&)> apply;
};

// clang-format off
std::vector<Operator> const& operators() {
  static std::vector<Operator> const all{
      {"add, broadcast", {values({3, 4}, 1), values({4}, 2)},
       [](auto& in) { return in[0].add(in[1]); }},
      {"mul, broadcast", {values({3, 1}, 1), values({1, 4}, 2)},
       [](auto& in) { return in[0].mul(in[1]); }},
      {"div", {values({3, 4}, 1), positive({4}, 2)}, [](auto& in) { return in[0].div(in[1]); }},
      {"matmul", {values({3, 4}, 1), values({4, 2}, 2)},
       [](auto& in) { return in[0].matmul(in[1]); }},
      {"bmm", {values({2, 3, 4}, 1), values({2, 4, 2}, 2)},
       [](auto& in) { return in[0].bmm(in[1]); }},
      {"addmm", {values({2}, 1), values({3, 4}, 2), values({4, 2}, 3)},
       [](auto& in) { return at::addmm(in[0], in[1], in[2], 0.5, 2); }},
      {"linear", {values({3, 4}, 1), values({2, 4}, 2), values({2}, 3)},
       [](auto& in) { return at::linear(in[0], in[1], in[2]); }},
      {"einsum", {values({2, 3, 4}, 1), values({4, 3}, 2)},
       [](auto& in) { return at::einsum("bij,ji->bi", {in[0], in[1]}); }},
      {"conv2d", {values({2, 2, 4, 4}, 1), values({3, 2, 3, 3}, 2), values({3}, 3)},
       [](auto& in) { return at::conv2d(in[0], in[1], in[2], 2, 1); }},
      {"batch_norm", {values({4, 2, 3}, 1), values({2}, 2), values({2}, 3)},
       [](auto& in) { return at::batch_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5, false); }},
      {"layer_norm", {values({3, 4}, 1), values({4}, 2), values({4}, 3)},
       [](auto& in) { return at::layer_norm(in[0], {4}, in[1], in[2]); }},
      {"group_norm", {values({2, 4, 3}, 1), values({4}, 2), values({4}, 3)},
       [](auto& in) { return at::group_norm(in[0], 2, in[1], in[2]); }},
      {"softmax", {values({3, 4}, 1)}, [](auto& in) { return in[0].softmax(1); }},
      {"log_softmax", {values({3, 4}, 1)}, [](auto& in) { return in[0].log_softmax(0); }},
      {"logsumexp", {values({3, 4}, 1)}, [](auto& in) { return in[0].logsumexp(1); }},
      {"cross_entropy", {values({3, 4}, 1)},
       [](auto& in) { return at::cross_entropy_loss(in[0], indices({2, 0, 3})); }},
      {"mse_loss", {values({3, 4}, 1), values({3, 4}, 2)},
       [](auto& in) { return at::mse_loss(in[0], in[1]); }},
      {"gelu", {values({3, 4}, 1)}, [](auto& in) { return at::gelu(in[0]); }},
      {"relu", {values({3, 4}, 1)}, [](auto& in) { return in[0].relu(); }},
      {"elu", {values({3, 4}, 1)}, [](auto& in) { return at::elu(in[0]); }},
      {"softplus", {values({3, 4}, 1)}, [](auto& in) { return at::softplus(in[0]); }},
      {"tanh", {values({3, 4}, 1)}, [](auto& in) { return in[0].tanh(); }},
      {"sigmoid", {values({3, 4}, 1)}, [](auto& in) { return in[0].sigmoid(); }},
      {"sin", {values({3, 4}, 1)}, [](auto& in) { return in[0].sin(); }},
      {"exp", {values({3, 4}, 1)}, [](auto& in) { return in[0].exp(); }},
      {"log", {positive({3, 4}, 1)}, [](auto& in) { return in[0].log(); }},
      {"sqrt", {positive({3, 4}, 1)}, [](auto& in) { return in[0].sqrt(); }},
      {"pow of a number", {values({3, 4}, 1)}, [](auto& in) { return in[0].pow(3); }},
      {"pow of a tensor", {positive({3, 4}, 1), values({4}, 2)},
       [](auto& in) { return in[0].pow(in[1]); }},
      {"abs", {values({3, 4}, 1)}, [](auto& in) { return in[0].abs(); }},
      {"clamp", {values({3, 4}, 1)}, [](auto& in) { return in[0].clamp(-0.45, 0.45); }},
      {"where", {values({3, 4}, 1), values({3, 4}, 2)},
       [](auto& in) { return at::where(in[0].detach().gt(0.3), in[0], in[1]); }},
      {"masked_fill", {values({3, 4}, 1)},
       [](auto& in) { return in[0].masked_fill(in[0].detach().lt(0), 2.5); }},
      {"maximum", {values({3, 4}, 1), values({3, 4}, 2)},
       [](auto& in) { return in[0].maximum(in[1]); }},
      {"embedding", {values({4, 3}, 1)},
       [](auto& in) { return at::embedding(in[0], indices({1, 3, 1})); }},
      {"index_select", {values({3, 4}, 1)},
       [](auto& in) { return in[0].index_select(1, indices({0, 2, 2})); }},
      {"gather", {values({3, 4}, 1)},
       [](auto& in) { return in[0].gather(1, indices({0, 3, 3, 1, 2, 2}).reshape({3, 2})); }},
      {"scatter_add", {values({3}, 1), values({5}, 2)},
       [](auto& in) { return in[0].scatter_add(0, indices({0, 1, 1, 2, 0}), in[1]); }},
      {"cat", {values({3, 2}, 1), values({3, 3}, 2)},
       [](auto& in) { return at::cat({in[0], in[1], in[0]}, 1); }},
      {"stack", {values({3, 2}, 1), values({3, 2}, 2)},
       [](auto& in) { return at::stack({in[0], in[1]}, 1); }},
      {"max_pool2d", {values({1, 2, 4, 4}, 1)},
       [](auto& in) { return at::max_pool2d(in[0], 2, 2); }},
      {"avg_pool2d", {values({1, 2, 4, 4}, 1)},
       [](auto& in) { return at::avg_pool2d(in[0], 3, 1); }},
      {"sum over one dimension", {values({3, 4}, 1)}, [](auto& in) { return in[0].sum(1); }},
      {"mean", {values({3, 4}, 1)}, [](auto& in) { return in[0].mean(); }},
      {"var", {values({3, 4}, 1)}, [](auto& in) { return in[0].var(1, true); }},
      {"prod", {values({3, 4}, 1)}, [](auto& in) { return in[0].prod(1); }},
      {"cumsum", {values({3, 4}, 1)}, [](auto& in) { return in[0].cumsum(1); }},
      {"norm", {values({3, 4}, 1)}, [](auto& in) { return in[0].norm(); }},
      {"amax", {values({3, 4}, 1)}, [](auto& in) { return in[0].amax(1); }},
      {"permute and reshape", {values({2, 3, 4}, 1)},
       [](auto& in) { return in[0].permute({2, 0, 1}).reshape({4, 6}); }},
      {"slice and flip", {values({3, 4}, 1)},
       [](auto& in) { return in[0].slice(1, 0, 4, 2).flip(0); }},
      {"diagonal", {values({3, 4}, 1)}, [](auto& in) { return in[0].diagonal(1); }},
      {"expand", {values({3, 1}, 1)}, [](auto& in) { return in[0].expand({3, 4}); }},
      {"inverse", {values({3, 3}, 4).add(at::eye(3, at::kDouble).mul(3))}, [](auto& in) { return in[0].inverse(); }}};
  return all;
}
// clang-format on

at::Tensor gradcheck_apply(int index, Tensors const& inputs) {
  return operators()[std::size_t(index)].apply(inputs);
}

/// Asks worker 1 for the operator's value, and for how it changes with its inputs.
class Check {
 public:
  Check(Workers const& w, int index) : w_(w), index_(index) {
    for (auto const& input : operators()[std::size_t(index)].inputs) {
      inputs_.push_back(input.clone().set_requires_grad(true));
    }
  }

  void first_order() const {
    auto ctx = w_[0].context();
    auto const output = w_[0].rpc_sync<gradcheck_apply>("worker1", index_, inputs_);
    REQUIRE(output.requires_grad());
    auto const direction = values(output.sizes(), 9);
    ctx.backward({output}, {.gradients = {direction}});
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      CAPTURE(i);
      auto const expected = differences(i, [&](Tensors const& at) {
        return gradcheck_apply(index_, at).mul(direction).sum().item<double>();
      });
      auto const got = ctx.gradient(inputs_[i]);
      REQUIRE(got.defined());
      CHECK(got.allclose(expected, 1e-6, 1e-7));
    }
  }

  /// The same for a function of the gradients.
  void second_order() const {
    auto ctx = w_[0].context();
    auto const output = w_[0].rpc_sync<gradcheck_apply>("worker1", index_, inputs_);
    auto const direction = values(output.sizes(), 9);
    auto const slopes =
        ctx.grad({output}, inputs_, {.create_graph = true, .gradients = {direction}});
    auto const total = weigh(slopes);
    if (total.requires_grad()) ctx.backward({total});
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      CAPTURE(i);
      auto const expected = differences(i, [&](Tensors at) {
        at::AutoGradMode const recording(true);
        for (auto& input : at) input = input.clone().set_requires_grad(true);
        auto const here = gradcheck_apply(index_, at);
        return weigh(torch::autograd::grad({here}, at, {direction})).item<double>();
      });
      auto const got = ctx.gradient(inputs_[i]);
      CHECK((got.defined() ? got : at::zeros_like(expected)).allclose(expected, 1e-6, 1e-7));
    }
  }

 private:
  /// One number that depends on each element of each tensor.
  static at::Tensor weigh(Tensors const& tensors) {
    auto sum = at::zeros({}, at::kDouble);
    int seed = 20;
    for (auto const& tensor : tensors) {
      sum = sum.add(tensor.mul(values(tensor.sizes(), ++seed)).sum());
    }
    return sum;
  }

  /// The derivative of `f` for each element of input `i`: central differences, whose error is of
  /// order 1e-10 at this width.
  template <class F>
  at::Tensor differences(std::size_t i, F const& f) const {
    constexpr double width = 1e-5;
    at::NoGradGuard const constant;
    Tensors at;
    for (auto const& input : inputs_) at.push_back(input.detach().clone());
    auto result = at::zeros(at[i].sizes(), at::kDouble);
    auto* const element = at[i].data_ptr<double>();
    for (std::int64_t k = 0; k < at[i].numel(); ++k) {
      double const center = element[k];
      element[k] = center + width;
      double const above = f(at);
      element[k] = center - width;
      double const below = f(at);
      element[k] = center;
      result.data_ptr<double>()[k] = (above - below) / (2 * width);
    }
    return result;
  }

  Workers const& w_;
  int index_;
  Tensors inputs_;
};

void first_order(Workers const& w) {
  for (int i = 0; i < int(operators().size()); ++i) {
    CAPTURE(operators()[std::size_t(i)].name);
    Check(w, i).first_order();
  }
}

void second_order(Workers const& w) {
  for (int i = 0; i < int(operators().size()); ++i) {
    CAPTURE(operators()[std::size_t(i)].name);
    Check(w, i).second_order();
  }
}

}  // namespace

TEST_CASE_TEMPLATE("gradients of operators on another worker are those of central differences",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(first_order);
}
TEST_CASE_TEMPLATE("second derivatives of operators on another worker are those of differences",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(second_order);
}

}  // namespace gradcheck_tests
