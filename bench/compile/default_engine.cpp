// The smallest whole program: one function, called on another worker.
#include <distgrad/distgrad.hpp>

at::Tensor twice(at::Tensor x) { return x.mul(2); }

int main() {
  distgrad::TcpEngine engine({.name = "caller", .rank = 0, .world_size = 2});
  auto const answer = engine.rpc_sync<twice>("callee", at::Tensor());
  engine.shutdown();
  return answer.defined() ? 0 : 1;
}
