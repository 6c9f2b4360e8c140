// One call and one backward pass between two workers of one process.
#include <distgrad/engine/local_cluster.hpp>  // first: clang 16 rejects ATen in C++20 otherwise

#include <ATen/ops/full.h>

#include <cstdio>

at::Tensor twice(at::Tensor const& x) { return x.mul(2); }

int main() {
  distgrad::LocalCluster<2> cluster;
  auto const x = at::full({1}, 3.0).set_requires_grad(true);

  auto context = cluster[0].context();
  auto const y = cluster[0].rpc_sync<twice>("worker1", x);
  context.backward({y.sum()});
  auto const gradient = context.gradient(x).item<float>();

  std::printf("d(2x)/dx = %g\n", gradient);
  return gradient == 2 ? 0 : 1;
}
