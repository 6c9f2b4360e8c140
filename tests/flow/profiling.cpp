// What libtorch's profiler hooks and an engine's own counters see of a backward pass.
#include "workers.hpp"

#include <map>
#include <mutex>

#include <ATen/ops/ones.h>
#include <ATen/record_function.h>

namespace profiling_tests {

using namespace distgrad;
using rig::leaf;
using rig::same;
using rig::Workers;

namespace {

at::Tensor profiled_mul(at::Tensor const& x, at::Tensor const& y) { return x.mul(y); }

std::mutex profiled_mutex;
std::map<std::string, std::vector<std::chrono::nanoseconds>> profiled_times;

struct Begin : at::ObserverContext {
  std::chrono::steady_clock::time_point at = std::chrono::steady_clock::now();
};
std::unique_ptr<at::ObserverContext> begin_function(at::RecordFunction const&) {
  return std::make_unique<Begin>();
}
void end_function(at::RecordFunction const& function, at::ObserverContext* context) {
  auto const took = std::chrono::steady_clock::now() - static_cast<Begin*>(context)->at;
  std::lock_guard lock(profiled_mutex);
  profiled_times[function.name()].push_back(took);
}

/// Both workers' functions are seen, as both live in this process.
void profile(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<profiled_mul>("worker1", x, y).sum();
  profiled_times.clear();
  auto const handle =
      at::addGlobalCallback(at::RecordFunctionCallback(begin_function, end_function));
  ctx.backward({root});
  at::removeCallback(handle);
  std::lock_guard lock(profiled_mutex);
  auto const& whole = profiled_times["distgrad::backward"];
  auto const& sends = profiled_times["SendRpcBackward"];
  auto const& recvs = profiled_times["RecvRpcBackward"];
  REQUIRE(whole.size() == 1);
  REQUIRE(sends.size() == 2);  // one of each worker
  REQUIRE(recvs.size() == 2);
  for (auto const took : sends) CHECK(took < whole[0]);
  for (auto const took : recvs) CHECK(took < whole[0]);
}

/// What the counters said while a node of the pass ran.
struct Seen {
  std::size_t passes = 0, contexts = 0;
};

void count(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  std::vector<Seen> seen;
  {
    auto ctx = w[0].context();
    auto const there = w[0].rpc_sync<profiled_mul>("worker1", x, y);
    there.register_hook([&](at::Tensor gradient) {
      auto const info = w[0].debug_info();
      seen.push_back({info.backward_passes, info.autograd_contexts});
      return gradient;
    });
    ctx.backward({there.sum()});
    CHECK(w[0].debug_info().backward_passes == 0);
  }
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].passes == 1);
  CHECK(seen[0].contexts == 1);
  CHECK(rig::eventually([&] { return w.are_clean(); }));
}

}  // namespace

TEST_CASE_TEMPLATE("[DA-65] a profiler sees the pass and its send and recv functions", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(profile);
}
TEST_CASE_TEMPLATE("[DA-26] passes and contexts are counted while they are there", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(count);
}

}  // namespace profiling_tests
