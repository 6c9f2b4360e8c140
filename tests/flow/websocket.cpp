// An engine whose messages travel in WebSockets.
#include "rig.hpp"

#include <ATen/ops/ones.h>
#include <distgrad/transport/websocket_transport.hpp>

namespace websocket_tests {

namespace {

using WebSocketEngine = distgrad::DistEngine<distgrad::WebSocketTransport, distgrad::CpuQueues>;

at::Tensor product_of(at::Tensor const& x, at::Tensor const& y) { return x.mul(y); }

}  // namespace

TEST_CASE("calls and a backward pass over WebSockets") {
  rig::Cluster<3, WebSocketEngine> cluster;
  // Larger than what goes out in one piece of a message.
  auto const x = at::ones({1 << 19}).mul(2).set_requires_grad(true);
  auto const y = at::ones({1 << 19}).mul(3).set_requires_grad(true);
  auto ctx = cluster[2].context();
  auto value = cluster[2].rpc_sync<product_of>("worker0", x, y);
  value = cluster[2].rpc_sync<product_of>("worker1", value, y);
  ctx.backward({value.sum()});
  CHECK(ctx.gradient(x).equal(y.mul(y).detach()));
  CHECK(ctx.gradient(y).equal(x.mul(y).mul(2).detach()));
  cluster.shutdown();
}

}  // namespace websocket_tests
