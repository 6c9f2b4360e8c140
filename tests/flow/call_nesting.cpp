// Calls that make calls, many calls, and calls that are taken back.
#include "rig.hpp"

#include <condition_variable>
#include <mutex>

#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>

namespace call_nesting_tests {

namespace {
namespace call_nesting {

using distgrad::errc;
using distgrad::Future;
using distgrad::this_worker;
using distgrad::Worker;

/// Holds handlers back until a test opens it.
class Gate {
 public:
  bool pass() {
    std::unique_lock lock(mutex_);
    ++inside_;
    changed_.notify_all();
    return changed_.wait_for(lock, std::chrono::seconds(30), [this] { return open_; });
  }
  bool wait_for_visitor() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [this] { return inside_ != 0; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void reset() {
    std::lock_guard lock(mutex_);
    open_ = false;
    inside_ = 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int inside_ = 0;
};
Gate gate;

at::Tensor add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }
at::Tensor heavy(at::Tensor const& x, int rounds) {
  auto y = x;
  for (int i = 0; i < rounds; ++i) y = y.matmul(x).tanh();
  return y;
}
bool held() { return gate.pass(); }
int rank_of_callee() { return this_worker().rank(); }

/// The ranks visited when every handler calls the next one and waits.
std::vector<int> walk(int hops, int stride) {
  auto& self = this_worker();
  std::vector<int> path{self.rank()};
  if (hops == 0) return path;
  int const next = (self.rank() + stride) % int(self.group().size());
  for (int rank : self.rpc_sync<walk>(next, hops - 1, stride)) path.push_back(rank);
  return path;
}

/// The same without a thread that waits.
Future<std::vector<int>> stroll(int hops) {
  auto& self = this_worker();
  int const here = self.rank();
  if (hops == 0) return distgrad::make_ready_future(std::vector<int>{here});
  int const next = (here + 1) % int(self.group().size());
  return self.rpc_async<stroll>(next, hops - 1).then([here](auto const& rest) {
    auto path = rest.get();
    path.insert(path.begin(), here);
    return path;
  });
}

Future<int> fan_out(int calls) {
  auto& self = this_worker();
  auto left = std::make_shared<std::atomic<int>>(calls);
  auto sum = std::make_shared<std::atomic<int>>(0);
  auto promise = std::make_shared<distgrad::Promise<int>>();
  for (int i = 0; i < calls; ++i) {
    self.rpc_async<rank_of_callee>(i % int(self.group().size())).then([=](auto const& rank) {
      *sum += rank.get();
      if (--*left == 0) promise->set_value(sum->load());
    });
  }
  return promise->future();
}

at::Tensor add_at(int rank, at::Tensor const& x) {
  return this_worker().rpc_sync<add>(rank, x, at::ones({2}));
}
std::vector<std::string> whereabouts(int hops) {
  auto& self = this_worker();
  std::vector<std::string> names;
  if (hops > 0) {
    names = self.rpc_sync<whereabouts>((self.rank() + 1) % int(self.group().size()), hops - 1);
  }
  // After the nested call this is still the outer call's handler.
  names.push_back(distgrad::caller().name + ">" + self.name());
  return names;
}

void check_walk(Worker& self, int hops, int stride) {
  std::vector<int> expected;
  int const size = int(self.group().size());
  for (int i = 0, rank = 1; i <= hops; ++i, rank = (rank + stride) % size) expected.push_back(rank);
  CHECK((self.rpc_sync<walk>(1, hops, stride) == expected));
}

void check_stroll(Worker& self, int hops) {
  auto const path = self.rpc_sync<stroll>(1, hops);
  REQUIRE(path.size() == std::size_t(hops + 1));
  for (int i = 0; i <= hops; ++i) CHECK(path[i] == (1 + i) % int(self.group().size()));
}

void check_light(Worker& self) {
  std::vector<Future<at::Tensor>> results;
  auto const x = at::ones({2});
  for (int i = 0; i < 1000; ++i) results.push_back(self.rpc_async<add>(1, x, x));
  auto const two = x.mul(2);
  bool all_equal = true;
  for (auto& result : results) all_equal = all_equal && result.get().equal(two);
  CHECK(all_equal);
  for (int i = 0; i < 1000; ++i) all_equal = all_equal && self.rpc_sync<add>(1, x, x).equal(two);
  CHECK(all_equal);
}

void check_heavy(Worker& self) {
  auto const x = at::rand({300, 300}).mul(0.01);
  auto const expected = heavy(x, 3);
  std::vector<Future<at::Tensor>> results;
  for (int i = 0; i < 20; ++i) results.push_back(self.rpc_async<heavy>(i % 2, x, 3));
  for (auto& result : results) CHECK(result.get().allclose(expected));
  auto const big = at::ones({8 << 20});  // 32 MiB
  CHECK(self.rpc_sync<add>(1, big, big).equal(big.mul(2)));
}

void check_cancel(Worker& self) {
  gate.reset();
  auto const call = self.rpc_async<held>("worker1");
  REQUIRE(gate.wait_for_visitor());
  CHECK_FALSE(call.is_ready());
  CHECK(call.cancel());
  CHECK(rig::error_of([&] { call.get(); }) == errc::cancelled);
  CHECK_FALSE(call.cancel());  // once
  CHECK(self.debug_info().pending_calls == 0);
  CHECK(self.debug_info().call_deadlines == 0);
  gate.open();  // its answer comes late, and is dropped
  CHECK(self.rpc_sync<held>("worker1"));
  CHECK(rig::error_of([&] { call.get(); }) == errc::cancelled);
  auto const finished = self.rpc_async<held>("worker1");
  finished.wait();
  CHECK_FALSE(finished.cancel());
  CHECK(finished.get());
}

template <class Engine>
typename Engine::Options one_thread() {
  auto options = rig::options<Engine>();
  options.queues.threads = 1;
  return options;
}

}  // namespace call_nesting
}  // namespace

using namespace call_nesting;

TEST_CASE_TEMPLATE("[RPC-20] a handler calls a third worker, or its caller", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  Worker& self = cluster[0];
  for (int rank : {0, 1, 2}) {
    CHECK(self.rpc_sync<add_at>(1, rank, at::ones({2})).equal(at::ones({2}).mul(2)));
  }
}

TEST_CASE_TEMPLATE("[RPC-20] twenty hops over four workers, waiting or not", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<4, Engine> cluster;
  check_walk(cluster[0], 20, 1);
  check_walk(cluster[0], 20, 3);
  check_stroll(cluster[0], 20);
}

TEST_CASE_TEMPLATE("[RPC-20] a hundred nested calls between two pools of one thread each", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster(one_thread<Engine>());
  check_walk(cluster[0], 100, 1);
  check_walk(cluster[1], 100, 1);
  check_walk(cluster[0], 20, 2);  // a worker that calls itself
}

TEST_CASE_TEMPLATE("[RPC-20] a pool that may not grow refuses a wait instead of a deadlock", Engine,
                   DISTGRAD_ENGINES) {
  auto options = one_thread<Engine>();
  options.queues.max_threads = 3;
  rig::Cluster<2, Engine> cluster(options);
  check_walk(cluster[0], 2, 1);
  auto const walk_100 = [&] { cluster[0].template rpc_sync<walk>(1, 100, 1); };
  CHECK(rig::error_of(walk_100) == errc::pool_exhausted);
  // Calls whose caller failed go on for a while.
  auto const walk_2 = [&] { cluster[0].template rpc_sync<walk>(1, 2, 1); };
  CHECK(rig::eventually([&] { return !rig::error_of(walk_2); }));
}

TEST_CASE_TEMPLATE("[RPC-26] a function that returns a future answers later and holds no thread",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster(one_thread<Engine>());
  Worker& self = cluster[0];
  check_stroll(self, 100);
  CHECK(self.rpc_sync<fan_out>(1, 30) == 30);
  CHECK(self.rpc_async<fan_out>(2, 3).get() == 3);
  CHECK(self.remote<fan_out>(2, 3).to_here() == 3);
  CHECK(rig::eventually([&] { return self.debug_info().owned_rrefs == 0; }));
}

TEST_CASE_TEMPLATE("[RPC-16] each handler knows its worker and its caller", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  Worker& self = cluster[0];
  CHECK((self.rpc_sync<whereabouts>(1, 3) ==
         std::vector<std::string>{"worker0>worker1", "worker2>worker0", "worker1>worker2",
                                  "worker0>worker1"}));
  CHECK(rig::error_of([] { this_worker(); }) == errc::no_context);
  CHECK(rig::error_of([] { distgrad::caller(); }) == errc::no_context);
}

TEST_CASE_TEMPLATE("[RPC-21] thousands of light calls, all at once and one after another", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  check_light(cluster[0]);
}

TEST_CASE_TEMPLATE("[RPC-21] heavy calls and large tensors", Engine, DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  check_heavy(cluster[0]);
}

TEST_CASE_TEMPLATE("[RPC-23] a cancelled call ends at once, and its late answer is dropped", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  check_cancel(cluster[0]);
}

}  // namespace call_nesting_tests
