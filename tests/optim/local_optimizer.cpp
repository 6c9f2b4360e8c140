#include <distgrad/optim/local_optimizer.hpp>

#include <doctest/doctest.h>

#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

namespace local_optimizer_tests {

using namespace distgrad;

namespace {

at::Tensor leaf_of_zeros() { return at::zeros({2}).set_requires_grad(true); }

/// A context in which `leaf` has the gradient `gradient`.
std::shared_ptr<DistAutogradContext> context_with(at::Tensor const& leaf,
                                                  at::Tensor const& gradient) {
  auto context = std::make_shared<DistAutogradContext>(ContextId{});
  GradientMap gradients;
  gradients.accumulate(leaf, gradient);
  context->merge(std::move(gradients));
  return context;
}

}  // namespace

TEST_CASE("options keep their values on the way to another worker") {
  torch::optim::AdamOptions sent(0.25), arrived;
  sent.betas({0.5, 0.75}).eps(0.125).weight_decay(2).amsgrad(true);
  distgrad::detail::load_options(distgrad::detail::save_options(sent), arrived);
  CHECK(arrived.lr() == 0.25);
  CHECK(arrived.betas() == std::tuple(0.5, 0.75));
  CHECK(arrived.eps() == 0.125);
  CHECK(arrived.weight_decay() == 2);
  CHECK(arrived.amsgrad());

  torch::optim::LBFGSOptions history(0.5), read;
  history.max_iter(1).max_eval(7).history_size(3).line_search_fn("strong_wolfe");
  distgrad::detail::load_options(distgrad::detail::save_options(history), read);
  CHECK(read.max_iter() == 1);
  CHECK(read.max_eval() == 7);
  CHECK(read.history_size() == 3);
  CHECK(read.line_search_fn() == "strong_wolfe");
}

TEST_CASE("bytes that are no options are an error") {
  torch::optim::AdamOptions options;
  CHECK_THROWS(distgrad::detail::load_options("these are no options", options));
  CHECK_THROWS(distgrad::detail::load_options("", options));
}

TEST_CASE("gradients are lent for a step, and what .grad held before comes back") {
  auto const used = leaf_of_zeros(), unused = leaf_of_zeros(), bare = leaf_of_zeros();
  auto const stale = at::full({2}, 9.0);
  unused.mutable_grad() = stale;
  used.mutable_grad() = stale;
  std::vector<at::Tensor> const parameters{used, unused, bare};
  auto const context = context_with(used, at::ones({2}));
  {
    distgrad::detail::LentGradients const lent(parameters, *context);
    CHECK(used.grad().equal(at::ones({2})));
    CHECK_FALSE(unused.grad().defined());
    CHECK_FALSE(bare.grad().defined());
  }
  CHECK(used.grad().is_same(stale));
  CHECK(unused.grad().is_same(stale));
  CHECK_FALSE(bare.grad().defined());
  CHECK(stale.equal(at::full({2}, 9.0)));
}

TEST_CASE("lent gradients go back when the step throws") {
  auto const leaf = leaf_of_zeros();
  std::vector<at::Tensor> const parameters{leaf};
  auto const context = context_with(leaf, at::ones({2}));
  CHECK_THROWS([&] {
    distgrad::detail::LentGradients const lent(parameters, *context);
    throw std::runtime_error("a step that fails");
  }());
  CHECK_FALSE(leaf.grad().defined());
}

TEST_CASE("an optimizer that evaluates the loss again is refused unless it does so once") {
  using Lbfgs = LocalOptimizer<torch::optim::LBFGS>;
  CHECK_THROWS_AS(Lbfgs({leaf_of_zeros()}, torch::optim::LBFGSOptions(1)), Error);
  CHECK_NOTHROW(Lbfgs({leaf_of_zeros()}, torch::optim::LBFGSOptions(1).max_iter(1)));
}

TEST_CASE("a step outside of a handler says that it belongs into one") {
  LocalOptimizer<torch::optim::SGD> local({leaf_of_zeros()}, torch::optim::SGDOptions(1));
  try {
    local.step(ContextId{});
    FAIL("no error");
  } catch (Error const& error) {
    CHECK(error.code() == errc::no_context);
  }
}

}  // namespace local_optimizer_tests
