#include <distgrad/engine/carrier.hpp>

#include <functional>
#include <stdexcept>
#include <utility>

#include <doctest/doctest.h>
#include <distgrad/engine/executor.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

namespace carrier_tests {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct During : torch::autograd::Function<During> {
  static inline thread_local std::function<void()> work;
  static Variable forward(AutogradContext*, Variable x) { return x.mul(1); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    work();
    return gradients;
  }
};

// A product whose node asks the current pass which of its two gradients are needed.
struct Inner {
  at::Tensor a = at::randn({3}).requires_grad_(), b = at::randn({3}).requires_grad_();
  at::Tensor loss = a.mul(b).sum();
  distgrad::Executor executor{{}};

  void run() {
    executor.add_root(loss);
    executor.run_ready();
  }
  bool is_right() const {
    auto const& gradients = executor.gradients();
    return gradients.contains(a) && gradients.contains(b) && gradients.find(a).equal(b) &&
           gradients.find(b).equal(a);
  }
};

}  // namespace

TEST_CASE("a carrier runs its work once, on the calling thread, in the pass's grad mode") {
  int runs = 0;
  for (bool create_graph : {false, true}) {
    c10::AutoGradMode const mode(!create_graph);
    distgrad::run_in_carrier(true, create_graph, [&] {
      ++runs;
      CHECK(c10::GradMode::is_enabled() == create_graph);
    });
    CHECK(c10::GradMode::is_enabled() == !create_graph);
  }
  CHECK(runs == 2);
}

TEST_CASE("an exception comes through a carrier unchanged") {
  struct Unusual : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  CHECK_THROWS_WITH_AS(distgrad::run_in_carrier(false, false, [] { throw Unusual("text"); }),
                       "text", Unusual);
}

TEST_CASE("below a stock pass for chosen inputs only a carrier gives all gradients") {
  auto const x = at::randn({3}).requires_grad_();
  Inner plain, carried;
  During::work = [&] {
    c10::AutoGradMode const mode(true);
    plain.run();
    distgrad::run_in_carrier(false, false, [&] { carried.run(); });
  };
  torch::autograd::grad({During::apply(x).sum()}, {x});
  CHECK(carried.is_right());
  CHECK_FALSE(plain.is_right());  // else this test would not show what it should
}

TEST_CASE("below a stock backward() and below our own pass gradients are whole either way") {
  Inner below_stock, below_ours;
  During::work = [&] { below_stock.run(); };
  auto const x = at::randn({3}).requires_grad_();
  torch::autograd::backward({During::apply(x).sum()});
  CHECK(below_stock.is_right());

  During::work = [&] { distgrad::run_in_carrier(false, false, [&] { below_ours.run(); }); };
  distgrad::Executor outer({});
  outer.add_root(During::apply(x).sum());
  distgrad::run_in_carrier(false, false, [&] { outer.run_ready(); });
  CHECK(outer.gradients().find(x).equal(at::ones({3})));
  CHECK(below_ours.is_right());
}

TEST_CASE("Engine::queue_callback works inside a carrier and is called at its end") {
  auto const x = at::randn({3}).requires_grad_();
  int called = 0;
  During::work = [&] {
    torch::autograd::Engine::get_default_engine().queue_callback([&] { ++called; });
  };
  distgrad::Executor executor({});
  executor.add_root(During::apply(x).sum());
  distgrad::run_in_carrier(false, false, [&] {
    executor.run_ready();
    CHECK(called == 0);
  });
  CHECK(executor.is_complete());
  CHECK(called == 1);
}

}  // namespace carrier_tests
