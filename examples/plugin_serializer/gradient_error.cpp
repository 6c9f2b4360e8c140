// What do gradients lose when float tensors travel as bfloat16?
#include <distgrad/distgrad.hpp>

#include "bfloat16_serializer.hpp"

#include <ATen/ops/arange.h>

#include <cstdio>

using namespace distgrad;
using HalfEngine = DistEngine<LoopbackTransport, CpuQueues, plugin::Bfloat16Serializer>;

at::Tensor layer(at::Tensor const& x, at::Tensor const& weight) { return x.mm(weight).tanh(); }

/// Numbers without a pattern, so that layers neither saturate nor lose what they get.
at::Tensor make_leaf(int seed) {
  auto const phases = at::arange(64 * 64, at::kDouble).add(seed).square().mul(0.37);
  return phases.sin().mul(0.17).to(at::kFloat).reshape({64, 64}).set_requires_grad(true);
}

/// The gradient of the first of `hops` layers, each of which is called on the other worker.
template <class Engine>
at::Tensor first_gradient(int hops) {
  LocalCluster<2, Engine> cluster;
  auto const first = make_leaf(0);
  auto context = cluster[0].context();
  auto value = make_leaf(100);
  for (int i = 0; i < hops; ++i) {
    value = cluster[0].template rpc_sync<layer>("worker1", value, i == 0 ? first : make_leaf(i));
  }
  context.backward({value.mul(value).sum()});
  return context.gradient(first);
}

template <class Serializer>
std::size_t bytes_of(at::Tensor const& tensor) {
  Writer out;
  std::vector<Buffer> buffers;
  Serializer(typename Serializer::Options()).pack(out, buffers, {&tensor, 1});
  return buffers.at(0).size_bytes();
}

int main() {
  std::printf("a [64, 64] tensor: %zu bytes as it is, %zu as bfloat16\n",
              bytes_of<TensorSerializer>(make_leaf(0)),
              bytes_of<plugin::Bfloat16Serializer>(make_leaf(0)));
  bool is_small = true;
  for (int hops : {1, 4, 16}) {
    auto const exact = first_gradient<LoopbackEngine>(hops);
    auto const lossy = first_gradient<HalfEngine>(hops);
    double const error = (lossy.sub(exact).norm().div(exact.norm())).item<double>();
    std::printf("%2d calls: relative error of the first gradient %.1e\n", hops, error);
    is_small = is_small && error > 0 && error < 0.02;
  }
  return is_small ? 0 : 1;
}

// Output:
// a [64, 64] tensor: 16384 bytes as it is, 8192 as bfloat16
//  1 calls: relative error of the first gradient 3.3e-03
//  4 calls: relative error of the first gradient 5.3e-03
// 16 calls: relative error of the first gradient 9.1e-03
