// Optimizers over parameters of several workers do what one process would do.

#include "simulated.hpp"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <atomic>
#include <thread>

namespace optimizer_tests {

using namespace distgrad;
namespace optim = torch::optim;

namespace {

at::Tensor make_parameter(at::Tensor const& value) {
  return value.detach().clone().set_requires_grad(true);
}
at::Tensor make_frozen_parameter(at::Tensor const& value) { return value.detach().clone(); }
at::Tensor make_inner_node(at::Tensor const& value) { return make_parameter(value).mul(2); }
at::Tensor value_of_parameter(RRef<at::Tensor> const& parameter) {
  return parameter.local_value().detach();
}
void set_stale_grad(RRef<at::Tensor> const& parameter, double value) {
  auto& tensor = parameter.local_value();
  tensor.mutable_grad() = tensor.detach().mul(0).add(value);
}
at::Tensor grad_of_parameter(RRef<at::Tensor> const& parameter) {
  return parameter.local_value().grad();
}

at::Tensor layer(at::Tensor const& weight, at::Tensor const& x) { return weight.mm(x).tanh(); }
at::Tensor layer_forward(RRef<at::Tensor> const& weight, at::Tensor const& x) {
  return layer(weight.local_value(), x);
}
at::Tensor dot_with(RRef<at::Tensor> const& weight, at::Tensor const& x) {
  return weight.local_value().mul(x).sum();
}

at::Tensor numbers(int rows, int columns, double scale) {
  return rig::at_home(
      at::arange(rows * columns, at::kDouble).reshape({rows, columns}).sub(3).mul(scale));
}
at::Tensor vector_of(int size, double value) {
  return rig::at_home(at::full({size}, value, at::kDouble));
}
at::Tensor input_of(int step) { return numbers(3, 2, 0.3).add(0.1 * step); }

struct Trained {
  at::Tensor first, second;
};
constexpr int steps = 6;

/// The reference: the same model in one process with plain libtorch.
/// @param together one optimizer for both weights, or one for each.
template <class Optimizer, class Options>
Trained train_alone(Options const& options, bool together) {
  rig::OnHost const here;
  auto const first = make_parameter(numbers(4, 3, 0.2));
  auto const second = make_parameter(numbers(2, 4, -0.3));
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  if (together) {
    optimizers.push_back(std::make_unique<Optimizer>(std::vector{first, second}, options));
  } else {
    optimizers.push_back(std::make_unique<Optimizer>(std::vector{first}, options));
    optimizers.push_back(std::make_unique<Optimizer>(std::vector{second}, options));
  }
  for (int step = 0; step < steps; ++step) {
    for (auto& optimizer : optimizers) optimizer->zero_grad();
    auto const loss = layer(second, layer(first, input_of(step))).sum();
    loss.backward();
    for (auto& optimizer : optimizers) optimizer->step([&] { return loss; });
  }
  return {first.detach(), second.detach()};
}

template <class Optimizer, class Options>
Trained train_distributed(Worker& self, Options const& options) {
  auto const first = self.remote<make_parameter>(1, numbers(4, 3, 0.2));
  auto const second = self.remote<make_parameter>(2, numbers(2, 4, -0.3));
  DistributedOptimizer<Optimizer> const optimizer(self, {first, second}, options);
  for (int step = 0; step < steps; ++step) {
    auto ctx = self.context();
    auto const hidden = self.rpc_sync<layer_forward>(1, first, input_of(step));
    ctx.backward({self.rpc_sync<layer_forward>(2, second, hidden).sum()});
    optimizer.step(ctx);
  }
  return {self.rpc_sync<value_of_parameter>(1, first),
          self.rpc_sync<value_of_parameter>(2, second)};
}

template <class Optimizer, class Options>
void check_same_result(Worker& self, Options const& options, bool together = true) {
  auto const alone = train_alone<Optimizer>(options, together);
  auto const distributed = train_distributed<Optimizer>(self, options);
  CHECK(at::allclose(distributed.first.cpu(), alone.first, 1e-12, 1e-12));
  CHECK(at::allclose(distributed.second.cpu(), alone.second, 1e-12, 1e-12));
  CHECK_FALSE(at::allclose(distributed.first, numbers(4, 3, 0.2), 1e-6, 1e-6));
  CHECK_FALSE(at::allclose(distributed.second, numbers(2, 4, -0.3), 1e-6, 1e-6));
}

class FailingStep : public optim::SGD {
 public:
  using optim::SGD::SGD;
  at::Tensor step(LossClosure = nullptr) override { throw std::runtime_error("no step today"); }
};
class FailingConstructor : public optim::SGD {
 public:
  FailingConstructor(std::vector<at::Tensor> const& parameters, optim::SGDOptions const& options)
      : optim::SGD(parameters, options) {
    throw std::runtime_error("no optimizer today");
  }
};

std::atomic<int> steps_at_once{0}, most_steps_at_once{0};
/// Notices when two steps overlap.
class ProbingStep : public optim::SGD {
 public:
  using optim::SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    auto const now = ++steps_at_once;
    for (auto most = most_steps_at_once.load(); most < now;) {
      if (most_steps_at_once.compare_exchange_weak(most, now)) break;
    }
    for (int i = 0; i < 50; ++i) std::this_thread::yield();
    auto result = optim::SGD::step(std::move(closure));
    --steps_at_once;
    return result;
  }
};
void train_probing(RRef<at::Tensor> const& weight, int rounds) {
  auto& self = this_worker();
  DistributedOptimizer<ProbingStep> const optimizer(self, {weight}, optim::SGDOptions(0.5));
  for (int i = 0; i < rounds; ++i) {
    auto ctx = self.context();
    ctx.backward({self.rpc_sync<dot_with>(0, weight, vector_of(2, 1))});
    optimizer.step(ctx);
  }
}

template <class Optimizer, class Options>
void check_left_alone(Worker& self, Options const& options) {
  auto const start = numbers(1, 2, 1);
  auto const used = self.remote<make_parameter>(1, start);
  auto const unused = self.remote<make_parameter>(1, start);
  auto const frozen = self.remote<make_frozen_parameter>(1, start);
  auto const lonely = self.remote<make_parameter>(0, start);  // its worker has no gradient at all
  for (auto const& parameter : {used, unused, frozen, lonely}) {
    self.rpc_sync<set_stale_grad>(parameter.owner(), parameter, 100);
  }
  DistributedOptimizer<Optimizer> const optimizer(self, {used, unused, frozen, lonely}, options);
  for (int i = 0; i < 2; ++i) {
    auto ctx = self.context();
    ctx.backward({self.rpc_sync<dot_with>(1, used, vector_of(2, 1))});
    optimizer.step(ctx);
  }
  CHECK_FALSE(self.rpc_sync<value_of_parameter>(1, used).equal(start));
  CHECK(self.rpc_sync<value_of_parameter>(1, unused).equal(start));
  CHECK(self.rpc_sync<value_of_parameter>(1, frozen).equal(start));
  CHECK(self.rpc_sync<value_of_parameter>(0, lonely).equal(start));
  for (auto const& parameter : {used, unused, frozen, lonely}) {
    auto const grad = self.rpc_sync<grad_of_parameter>(parameter.owner(), parameter);
    CHECK(grad.equal(vector_of(2, 100).reshape({1, 2})));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("[OPT-01] what a remote step throws arrives where step was called", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  Worker& self = cluster[0];
  auto const first = self.remote<make_parameter>(1, numbers(1, 2, 1));
  auto const second = self.remote<make_parameter>(2, numbers(1, 2, 1));
  DistributedOptimizer<FailingStep> const optimizer(self, {first, second}, optim::SGDOptions(0.1));
  auto ctx = self.context();
  ctx.backward({self.rpc_sync<dot_with>(1, first, vector_of(2, 1))});
  CHECK_THROWS_AS(optimizer.step(ctx), RemoteError);
  auto const text = rig::text_of([&] { optimizer.step(ctx); });
  CHECK(text.find("no step today") != std::string::npos);
  CHECK(text.find("worker1") != std::string::npos);
  CHECK(text.find("also") != std::string::npos);  // the other worker's error is not lost
  CHECK(self.rpc_sync<value_of_parameter>(1, first).equal(numbers(1, 2, 1)));
}

TEST_CASE_TEMPLATE("[OPT-02] what a remote constructor throws arrives at the constructor", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Worker& self = cluster[0];
  using Parameters = std::vector<RRef<at::Tensor>>;
  Parameters const parameters{self.remote<make_parameter>(1, numbers(1, 2, 1))};
  auto const text_of = [&](auto kind, Parameters const& of, optim::SGDOptions const& options) {
    using Optimizer = typename decltype(kind)::type;
    return rig::text_of([&] { DistributedOptimizer<Optimizer>(self, of, options); });
  };
  CHECK(text_of(std::type_identity<FailingConstructor>(), parameters, 0.1)
            .find("no optimizer today") != std::string::npos);
  CHECK(text_of(std::type_identity<optim::SGD>(), parameters, -1.0).find("Invalid learning rate") !=
        std::string::npos);
  Parameters const inner{self.remote<make_inner_node>(1, numbers(1, 2, 1))};
  CHECK(text_of(std::type_identity<optim::SGD>(), inner, 0.1).find("non-leaf") !=
        std::string::npos);
  CHECK(text_of(std::type_identity<optim::SGD>(), parameters, 0.1).empty());
}

TEST_CASE_TEMPLATE("[OPT-03] two owners train like one process", Engine, DISTGRAD_ALL_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  Worker& self = cluster[0];
  SUBCASE("Adagrad") {
    check_same_result<optim::Adagrad>(self, optim::AdagradOptions(0.1).lr_decay(0.01));
  }
  SUBCASE("Adam") { check_same_result<optim::Adam>(self, optim::AdamOptions(0.05).amsgrad(true)); }
  SUBCASE("AdamW") {
    check_same_result<optim::AdamW>(self, optim::AdamWOptions(0.05).amsgrad(true));
  }
  SUBCASE("SGD") { check_same_result<optim::SGD>(self, optim::SGDOptions(0.05)); }
  SUBCASE("SGD with momentum, weight decay, nesterov") {
    check_same_result<optim::SGD>(
        self, optim::SGDOptions(0.05).momentum(1).weight_decay(1).nesterov(true));
  }
  SUBCASE("RMSprop") {
    check_same_result<optim::RMSprop>(self, optim::RMSpropOptions(0.01).momentum(0.5));
  }
  SUBCASE("LBFGS of one iteration") {
    // It works on all its parameters as one vector: one optimizer per worker is another method
    // than one over both, so the single process has two as well.
    check_same_result<optim::LBFGS>(self, optim::LBFGSOptions(0.1).max_iter(1), false);
  }
}

TEST_CASE_TEMPLATE("[OPT-03] several parameters of one worker share one optimizer", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Worker& self = cluster[0];
  auto const weights = std::vector{self.remote<make_parameter>(1, numbers(1, 2, 1)),
                                   self.remote<make_parameter>(0, numbers(1, 2, 2)),
                                   self.remote<make_parameter>(1, numbers(1, 2, 3))};
  DistributedOptimizer<optim::SGD> const optimizer(self, weights, optim::SGDOptions(1));
  auto ctx = self.context();
  auto loss = self.rpc_sync<dot_with>(1, weights[0], vector_of(2, 1.0));
  loss = loss.add(self.rpc_sync<dot_with>(0, weights[1], vector_of(2, 2.0)));
  loss = loss.add(self.rpc_sync<dot_with>(1, weights[2], vector_of(2, 3.0)));
  ctx.backward({loss});
  optimizer.step(ctx);
  CHECK(self.rpc_sync<value_of_parameter>(1, weights[0]).equal(numbers(1, 2, 1).sub(1)));
  CHECK(self.rpc_sync<value_of_parameter>(0, weights[1]).equal(numbers(1, 2, 2).sub(2)));
  CHECK(self.rpc_sync<value_of_parameter>(1, weights[2]).equal(numbers(1, 2, 3).sub(3)));
}

TEST_CASE_TEMPLATE(
    "[OPT-04] parameters without a gradient in the context stay as they are, "
    "whatever their .grad holds",
    Engine, DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Worker& self = cluster[0];
  SUBCASE("SGD") {
    check_left_alone<optim::SGD>(self, optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
  }
  SUBCASE("Adam") { check_left_alone<optim::Adam>(self, optim::AdamOptions(0.1)); }
  SUBCASE("AdamW") { check_left_alone<optim::AdamW>(self, optim::AdamWOptions(0.1)); }
  SUBCASE("Adagrad") { check_left_alone<optim::Adagrad>(self, optim::AdagradOptions(0.1)); }
  SUBCASE("RMSprop") { check_left_alone<optim::RMSprop>(self, optim::RMSpropOptions(0.1)); }
  SUBCASE("LBFGS") { check_left_alone<optim::LBFGS>(self, optim::LBFGSOptions(0.1).max_iter(1)); }
}

TEST_CASE_TEMPLATE("steps of several trainers exclude each other on a worker", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  most_steps_at_once = 0;
  auto const weight = cluster[0].make_rref(make_parameter(vector_of(2, 100.0)));
  std::vector<Future<void>> trainers;
  for (int rank = 0; rank < 3; ++rank) {
    trainers.push_back(cluster[0].template rpc_async<train_probing>(rank, weight, 20));
  }
  for (auto const& trainer : trainers) trainer.get();
  CHECK(most_steps_at_once.load() == 1);
  CHECK(weight.local_value().detach().equal(vector_of(2, 100.0 - 3 * 20 * 0.5)));
}

TEST_CASE_TEMPLATE("LBFGS of many iterations is refused, saying what to set", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Worker& self = cluster[0];
  std::vector<RRef<at::Tensor>> const parameters{self.remote<make_parameter>(1, numbers(1, 2, 1))};
  auto const make = [&] {
    DistributedOptimizer<optim::LBFGS>(self, parameters, optim::LBFGSOptions(1).max_iter(20));
  };
  CHECK(rig::error_of(make) == errc::not_supported);
  CHECK(rig::text_of(make).find("max_iter") != std::string::npos);
}

TEST_CASE_TEMPLATE("a step in a context that was released fails", Engine, DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Worker& self = cluster[0];
  auto const weight = self.remote<make_parameter>(1, numbers(1, 2, 1));
  DistributedOptimizer<optim::SGD> const optimizer(self, {weight}, optim::SGDOptions(1));
  auto const id = self.context().id();
  CHECK(rig::error_of([&] { optimizer.step(id); }) == errc::unknown_context);
}

}  // namespace optimizer_tests
