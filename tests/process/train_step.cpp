// A model whose two layers live in two other processes learns as if it lived in one.
#include "processes.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

namespace {

using distgrad::RRef;
using distgrad::this_worker;
using distgrad::Worker;

at::Tensor make_weight(std::int64_t rows, std::int64_t columns, double scale) {
  return at::arange(rows * columns, at::kDouble)
      .view({rows, columns})
      .mul(scale)
      .sub(0.5)
      .set_requires_grad(true);
}
at::Tensor layer(at::Tensor const& x, RRef<at::Tensor> const& weight) {
  return x.matmul(weight.local_value()).tanh();
}
/// Changes a weight where it lives, by its gradient in the context.
void step(distgrad::ContextId context, RRef<at::Tensor> const& weight, double rate) {
  auto& w = weight.local_value();
  auto const gradient = this_worker().context_part(context)->gradient(w);
  w.data().sub_(gradient.mul(rate));
}
at::Tensor gradient_of(distgrad::ContextId context, RRef<at::Tensor> const& weight) {
  return this_worker().context_part(context)->gradient(weight.local_value());
}
long process_id() { return ::getpid(); }

at::Tensor loss_of(at::Tensor const& y) { return y.sub(0.25).pow(2).sum(); }

/// The same model in this process.
struct Reference {
  at::Tensor first = make_weight(4, 3, 0.1), second = make_weight(3, 2, 0.2);

  double train(at::Tensor const& x, double rate) {
    first.mutable_grad() = at::Tensor();
    second.mutable_grad() = at::Tensor();
    auto const loss = loss_of(x.matmul(first).tanh().matmul(second).tanh());
    loss.backward();
    first.data().sub_(first.grad().mul(rate));
    second.data().sub_(second.grad().mul(rate));
    return loss.item<double>();
  }
};

}  // namespace

TEST_CASE("three processes train a model as one process does") {
  processes::Group group(3, "serve");
  Worker& self = group.engine();
  CHECK(self.rpc_sync<process_id>("worker1") != process_id());
  CHECK(self.rpc_sync<process_id>("worker1") != self.rpc_sync<process_id>("worker2"));

  auto const first = self.remote<make_weight>("worker1", 4, 3, 0.1);
  auto const second = self.remote<make_weight>("worker2", 3, 2, 0.2);
  auto const x = at::ones({5, 4}, at::kDouble).mul(0.3);
  Reference reference;
  double last = 1e9;
  for (int round = 0; round < 5; ++round) {
    auto context = self.context();
    auto const hidden = self.rpc_sync<layer>("worker1", x, first);
    auto const loss = loss_of(self.rpc_sync<layer>("worker2", hidden, second));
    context.backward({loss});
    auto const expected = reference.train(x, 0.1);
    CHECK(loss.item<double>() == doctest::Approx(expected));
    CHECK(self.rpc_sync<gradient_of>("worker1", context.id(), first)
              .allclose(reference.first.grad()));
    CHECK(self.rpc_sync<gradient_of>("worker2", context.id(), second)
              .allclose(reference.second.grad()));
    self.rpc_sync<step>("worker1", context.id(), first, 0.1);
    self.rpc_sync<step>("worker2", context.id(), second, 0.1);
    CHECK(loss.item<double>() < last);
    last = loss.item<double>();
  }
  CHECK(first.to_here().allclose(reference.first));
  CHECK(second.to_here().allclose(reference.second));

  group.engine().shutdown(std::chrono::seconds(60));
  CHECK(group.process(1).exit_code() == 0);
  CHECK(group.process(2).exit_code() == 0);
}

int main(int argc, char** argv) {
  return processes::run(argc, argv, {{"serve", processes::serve}});
}
