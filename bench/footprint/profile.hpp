// What one profile of the engine costs: what the program of each has in common.
#pragma once

#include "measure.hpp"

#include <distgrad/engine/dist_engine.hpp>
#include <distgrad/transport/tcp_transport.hpp>

#include <ATen/ops/ones.h>

namespace footprint {

inline at::Tensor layer(at::Tensor const& x) { return x.mm(x); }
inline int add_one(int x) { return x + 1; }

/// Rank 0 measures and prints; rank 1 serves.
template <class Engine>
bool run(int rank, std::uint16_t port) {
  layer(at::ones({2, 2}).set_requires_grad(true)).sum().backward();  // what libtorch needs itself
  Before const before;
  Engine engine({.rank = rank, .world_size = 2, .master_port = port});
  if (rank == 0) {
    engine.template rpc_sync<add_one>(1, 0);
    print_start(before);
    if constexpr (requires { engine.poll(); }) {
      while (engine.poll().steps != 0) {
      }
      count_calls_of(polls, [&](int) { engine.poll(); });
    }
    count_calls_of(calls, [&](int i) { engine.template rpc_sync<add_one>(1, i); });
  }
  engine.shutdown();
  return true;
}

}  // namespace footprint
