// [C-006] A leaf that travels by value in a context stays connected, however it is wrapped: its
// gradient comes back to its owner. It is never detached in silence.
#include "workers.hpp"

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>

namespace sent_parameters_tests {

using namespace distgrad;
using rig::leaf;
using rig::Mode;
using rig::same;
using rig::Workers;

namespace {

/// What a user's model may look like.
struct Layer {
  at::Tensor weight, bias;
};
struct Model {
  Layer first, second;
  std::vector<at::Tensor> more;
  std::optional<at::Tensor> scale;
  std::map<std::string, at::Tensor> named;
  int repeats = 1;
};

at::Tensor sent_linear(Layer const& layer, at::Tensor const& x) {
  return at::linear(x, layer.weight, layer.bias);
}
at::Tensor sent_model(Model const& model, at::Tensor const& x) {
  auto value = sent_linear(model.first, x).tanh();
  for (int i = 0; i < model.repeats; ++i) value = sent_linear(model.second, value);
  for (auto const& tensor : model.more) value = value.add(tensor);
  if (model.scale) value = value.mul(*model.scale);
  return value.mul(model.named.at("gain"));
}
at::Tensor sent_pair(std::pair<at::Tensor, std::tuple<at::Tensor, double>> const& pair) {
  return pair.first.mul(std::get<0>(pair.second)).mul(std::get<1>(pair.second));
}

std::vector<at::Tensor> leaves_of(Model const& model) {
  std::vector<at::Tensor> leaves{model.first.weight, model.first.bias, model.second.weight,
                                 model.second.bias,  *model.scale,     model.named.at("gain")};
  leaves.insert(leaves.end(), model.more.begin(), model.more.end());
  return leaves;
}

void wrapped_leaves(Workers const& w) {
  Model const model{
      {leaf(1), leaf(2)}, {leaf(3), leaf(4)}, {leaf(5), leaf(6)}, leaf(7), {{"gain", leaf(8)}}, 2};
  auto const x = leaf(9).detach();
  for (auto mode : {Mode::call, Mode::remote}) {
    auto ctx = w[0].context();
    ctx.backward({rig::run<sent_model>(w[0], mode, "worker1", model, x).sum()});
    rig::check_gradients(ctx, sent_model(model, x).sum(), leaves_of(model));
    CHECK(ctx.gradients().size() == leaves_of(model).size());
    CHECK(w[1].context_part(ctx.id())->gradients().empty());  // no leaf of its own there
  }
  std::pair const pair{leaf(1), std::tuple{leaf(2), 0.5}};
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<sent_pair>("worker1", pair).sum()});
  rig::check_gradients(ctx, sent_pair(pair).sum(), {pair.first, std::get<0>(pair.second)});
}

// --- a leaf that is passed on, or returned -------------------------------------------------------

at::Tensor sent_on(Layer const& layer, at::Tensor const& x) {
  return this_worker().rpc_sync<sent_linear>("worker2", layer, x).add(layer.bias);
}

void passed_on(Workers const& w) {
  Layer const layer{leaf(1), leaf(2)};
  auto const x = leaf(3).detach();
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<sent_on>("worker1", layer, x).sum()});
  rig::check_gradients(ctx, sent_linear(layer, x).add(layer.bias).sum(),
                       {layer.weight, layer.bias});
  CHECK(w[1].context_part(ctx.id())->gradients().empty());
  CHECK(w[2].context_part(ctx.id())->gradients().empty());
}

at::Tensor sent_back(at::Tensor const& x) { return x; }
Layer sent_layer_back(Layer const& layer) { return {layer.bias, layer.weight}; }

void returned_as_it_came(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  auto const echo = w[0].rpc_sync<sent_back>("worker1", x);
  auto const swapped = w[0].rpc_sync<sent_layer_back>("worker1", Layer{x, y});
  ctx.backward({echo.mul(2).sum(), swapped.weight.mul(3).sum(), swapped.bias.mul(5).sum()});
  CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(7)));
  CHECK(same(ctx.gradient(y), at::ones({3, 3}).mul(3)));
}

// --- one module, two users -----------------------------------------------------------------------

Layer sent_make_module() { return {leaf(1), leaf(2).detach()[0].set_requires_grad(true)}; }
at::Tensor sent_call_module(RRef<Layer> const& module, at::Tensor const& x) {
  return sent_linear(module.local_value(), x);
}
at::Tensor sent_half_loss(RRef<Layer> const& module, at::Tensor const& x, at::Tensor const& y) {
  auto const owner = module.owner().id;
  return at::mse_loss(this_worker().rpc_sync<sent_call_module>(owner, module, x), y);
}

// w2 owns the module; w0 and w1 compute a loss on one half of a batch each.
void halves_of_a_batch(Workers const& w) {
  auto const module = w[0].remote<sent_make_module>("worker2");
  auto const x = at::arange(24, at::kFloat).reshape({8, 3}).sin();
  auto const y = at::arange(24, at::kFloat).reshape({8, 3}).cos();
  auto const half = [](at::Tensor const& t, int i) { return t.narrow(0, i * 4, 4); };
  auto ctx = w[0].context();
  auto const here =
      at::mse_loss(w[0].rpc_sync<sent_call_module>("worker2", module, half(x, 0)), half(y, 0));
  auto const there = w[0].rpc_sync<sent_half_loss>("worker1", module, half(x, 1), half(y, 1));
  ctx.backward({here.add(there).mul(0.5)});

  auto const local = sent_make_module();
  auto const expected =
      rig::local_gradients(at::mse_loss(sent_linear(local, x), y), {local.weight, local.bias});
  auto const got = w[2].context_part(ctx.id())->gradients();
  REQUIRE(got.size() == 2);
  for (auto const& [variable, gradient] : got) {
    CHECK(gradient.allclose(same(variable, local.weight) ? expected[0] : expected[1]));
  }
}

// --- what keeps a call out of the graph ----------------------------------------------------------

void no_grad(Workers const& w) {
  Layer const layer{leaf(1), leaf(2)};
  auto const x = leaf(3);
  auto const counts = [&](distgrad::Context const& ctx) {
    auto const here = w[0].context_part(ctx.id()), there = w[1].context_part(ctx.id());
    return std::tuple{here->sends().size(), here->recvs().size(), there->sends().size(),
                      there->recvs().size()};
  };
  auto ctx = w[0].context();
  auto const first = w[0].rpc_sync<sent_linear>("worker1", layer, x);
  CHECK(counts(ctx) == std::tuple(1u, 1u, 1u, 1u));
  at::Tensor constant;
  {
    at::NoGradGuard const off;
    constant = w[0].rpc_sync<sent_linear>("worker1", layer, x);
    CHECK_FALSE(w[0].remote<sent_linear>("worker1", layer, x).to_here().requires_grad());
  }
  CHECK_FALSE(constant.requires_grad());
  CHECK(counts(ctx) == std::tuple(1u, 1u, 1u, 1u));
  auto const last = w[0].rpc_sync<sent_linear>("worker1", layer, x);
  CHECK(counts(ctx) == std::tuple(2u, 2u, 2u, 2u));
  ctx.backward({first.add(constant).add(last).sum()});
  CHECK(same(ctx.gradient(layer.bias), at::ones({3, 3}).mul(2)));
}

at::Tensor sent_without_grad(at::Tensor const& x) {
  at::NoGradGuard const off;
  return x.mul(2);
}
bool sent_records(at::Tensor const& x) { return x.mul(2).requires_grad(); }

// The mode belongs to a thread: the callee's function decides for itself.
void grad_mode_of_the_callee(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  CHECK_FALSE(w[0].rpc_sync<sent_without_grad>("worker1", x).requires_grad());
  CHECK(w[0].rpc_sync<sent_records>("worker1", x));
}

}  // namespace

TEST_CASE_TEMPLATE("[C-006] a leaf in a user's struct gets its gradient from another worker",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(wrapped_leaves);
}
TEST_CASE_TEMPLATE("[C-006] a leaf that is passed on gets its gradient from both workers", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(passed_on);
}
TEST_CASE_TEMPLATE("[C-006] a leaf that comes back as a result is still connected", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(returned_as_it_came);
}
TEST_CASE_TEMPLATE("[C-006] two workers' halves of a batch give a module the whole gradient",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(halves_of_a_batch);
}
TEST_CASE_TEMPLATE("[C-017] a call under NoGradGuard attaches nothing", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(no_grad);
}
TEST_CASE_TEMPLATE("a function that records nothing returns constants", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(grad_mode_of_the_callee);
}

}  // namespace sent_parameters_tests
