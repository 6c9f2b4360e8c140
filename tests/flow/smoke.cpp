#include "rig.hpp"

#include <ATen/ops/ones.h>

namespace smoke_tests {

namespace {

at::Tensor multiply(at::Tensor const& x, at::Tensor const& y) { return x.mul(y); }
at::Tensor add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }

}  // namespace

TEST_CASE_TEMPLATE("[RPC-57] a worker that calls itself a hundred times leaves nothing behind",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<1, Engine> cluster;
  auto& self = cluster[0];
  for (int i = 0; i < 100; ++i) {
    auto const x = at::ones({2, 2}).set_requires_grad(true);
    auto const y = at::ones({2, 2}).mul(2).set_requires_grad(true);
    auto ctx = self.context();
    auto value = self.template rpc_sync<multiply>("worker0", x, y);
    for (int hop = 0; hop < 5; ++hop) value = self.template rpc_sync<add>("worker0", value, y);
    auto const rref = self.template remote<multiply>("worker0", value, y);
    ctx.backward({rref.to_here().sum()});
    // ((x * y) + 5 y) * y
    CHECK(ctx.gradient(x).equal(y.mul(y).detach()));
    CHECK(ctx.gradient(y).equal(x.mul(y).mul(2).add(y.mul(10)).detach()));
  }
  CHECK(rig::eventually([&] { return self.debug_info().owned_rrefs == 0; }));
  cluster.shutdown();
  auto const info = self.debug_info();
  CHECK(info.pending_calls == 0);
  CHECK(info.call_deadlines == 0);
  CHECK(info.autograd_contexts == 0);
  CHECK(info.backward_passes == 0);
}

}  // namespace smoke_tests
