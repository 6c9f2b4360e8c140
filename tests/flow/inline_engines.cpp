// Engines without a thread: the program drives them, or whoever waits does.
#include "driver.hpp"
#include "ending.hpp"

#include <atomic>

#include <ATen/ops/ones.h>

namespace inline_engines_tests {

namespace {
namespace inline_engines {

using namespace std::chrono_literals;
using distgrad::Clock;
using distgrad::errc;
using distgrad::InlineQueues;
using distgrad::this_worker;
using distgrad::Worker;
using InlineLoopback = distgrad::DistEngine<distgrad::LoopbackTransport, InlineQueues>;
using InlineTcp = distgrad::DistEngine<distgrad::TcpTransport, InlineQueues>;
#define INLINE_ENGINES inline_engines::InlineLoopback, inline_engines::InlineTcp

/// The engine over the same transport that has threads.
template <class Engine>
struct Threaded;
template <>
struct Threaded<InlineLoopback> {
  using type = distgrad::LoopbackEngine;
};
template <>
struct Threaded<InlineTcp> {
  using type = distgrad::TcpEngine;
};

int add_one(int x) { return x + 1; }
at::Tensor scale(at::Tensor const& x, double by) { return x.mul(by); }
std::size_t this_thread() { return std::hash<std::thread::id>()(std::this_thread::get_id()); }
int bounce(int hops) {
  auto& self = this_worker();
  return hops == 0 ? 0 : 1 + self.rpc_sync<bounce>(1 - self.rank(), hops - 1);
}
at::Tensor scale_at(int rank, at::Tensor const& x) {
  return this_worker().rpc_sync<scale>(rank, x, 2.0);
}

bool records() { return c10::GradMode::is_enabled(); }
bool records_at(int rank) { return this_worker().rpc_sync<records>(rank); }

/// An inline engine of rank 0 and a threaded one of rank 1 that have met.
template <class Engine>
struct Mixed {
  using Other = typename Threaded<Engine>::type;
  std::unique_ptr<Engine> driven;
  std::unique_ptr<Other> threaded;

  Mixed() {
    auto mine = rig::options<Engine>();
    auto others = rig::options<Other>();
    distgrad::LocalRendezvous rendezvous;
    if constexpr (requires { mine.transport.hub; }) {
      mine.transport.hub = others.transport.hub = std::make_shared<distgrad::LoopbackHub>();
    }
    mine.rendezvous = others.rendezvous = rendezvous;
    mine.world_size = others.world_size = 2;
    others.rank = 1;
    std::thread starter([&] { threaded = std::make_unique<Other>(others); });
    driven = std::make_unique<Engine>(mine);
    starter.join();
  }
};

/// What others call runs in grad mode, whatever the mode in which this worker waits.
void check_grad_mode(Worker& self) {
  auto const x = at::ones({3}).set_requires_grad(true);
  auto context = self.context();
  at::NoGradGuard const off;
  CHECK_FALSE(self.rpc_sync<scale_at>(1, 0, x).requires_grad());
  CHECK(self.rpc_sync<records_at>(1, 0));
  CHECK_FALSE(c10::GradMode::is_enabled());
}

void check_backward(Worker& self, int via, int rank) {
  auto const x = at::ones({3}).set_requires_grad(true);
  auto context = self.context();
  auto const y = self.rpc_sync<scale_at>(via, rank, x);
  auto const z = self.rpc_sync<scale>(rank, y, 3.0);
  context.backward({z.sum()});
  CHECK(context.gradient(x).equal(at::ones({3}).mul(6)));
}

}  // namespace inline_engines
}  // namespace

using namespace inline_engines;

TEST_CASE_TEMPLATE("one thread drives a whole group of inline engines", Engine, INLINE_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  std::vector<distgrad::Future<int>> calls;
  for (int i = 0; i < 50; ++i) {
    calls.push_back(cluster[i % 2].template rpc_async<add_one>(1 - i % 2, i));
  }
  auto const handler = cluster[0].template rpc_async<this_thread>(1);
  for (auto& call : calls) CHECK_FALSE(call.is_ready());  // nothing happens by itself
  bool const all_ready = rig::eventually([&] {
    for (auto& engine : cluster) engine->poll();
    for (auto& call : calls) {
      if (!call.is_ready()) return false;
    }
    return handler.is_ready();
  });
  REQUIRE(all_ready);
  for (int i = 0; i < 50; ++i) CHECK(calls[i].get() == i + 1);
  CHECK(handler.get() == this_thread());
}

TEST_CASE_TEMPLATE("a wait on an inline engine drives it", Engine, INLINE_ENGINES) {
  Mixed<Engine> pair;
  Worker& self = *pair.driven;
  CHECK(self.rpc_sync<add_one>("worker1", 1) == 2);
  CHECK(self.rpc_sync<add_one>("worker0", 1) == 2);  // itself
  CHECK(self.remote<add_one>(1, 1).to_here() == 2);
  CHECK(self.remote<add_one>(0, 1).to_here() == 2);
  CHECK(self.rpc_async<add_one>(1, 1).then([](auto const& x) { return x.get() * 2; }).get() == 4);
  // Handlers run inside the wait, and wait themselves.
  CHECK(self.rpc_sync<bounce>(1, 40) == 40);
  CHECK(rig::text_of([&] { self.rpc_sync<scale>(1, at::Tensor(), 1.0); }) != "");
  CHECK(self.debug_info().pending_calls == 0);
}

TEST_CASE_TEMPLATE("a wait on an inline engine ends at the call's deadline", Engine,
                   INLINE_ENGINES) {
  rig::Cluster<2, Engine> cluster;  // nobody drives worker1
  Worker& self = cluster[0];
  auto const brief = distgrad::within(20ms, "worker1");
  CHECK(rig::error_of([&] { self.rpc_sync<add_one>(brief, 1); }) == errc::timeout);
  CHECK_FALSE(self.rpc_async<add_one>(1, 1).wait_for(1ms));
}

TEST_CASE_TEMPLATE("inline engines on two threads serve each other's nested calls", Engine,
                   INLINE_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  rig::Driver<Engine> driver(cluster[1]);
  Worker& self = cluster[0];
  CHECK(self.rpc_sync<bounce>(1, 40) == 40);
  CHECK(self.rpc_sync<bounce>(0, 41) == 41);
}

TEST_CASE_TEMPLATE("several threads wait on one inline engine, and one of them drives it", Engine,
                   INLINE_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  rig::Driver<Engine> driver(cluster[1]);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        auto const call = cluster[0].template rpc_async<add_one>(1, i);
        right += call.wait_for(30s) && call.get() == i + 1;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == 200);
}

TEST_CASE_TEMPLATE("a backward pass runs on inline engines", Engine, INLINE_ENGINES) {
  SUBCASE("with a peer that has threads") {
    Mixed<Engine> pair;
    for (int via : {0, 1}) {
      for (int rank : {0, 1}) check_backward(*pair.driven, via, rank);
    }
    check_backward(*pair.driven, 1, 0);
  }
  SUBCASE("started by the peer that has threads") {
    Mixed<Engine> pair;
    rig::Driver<Engine> driver(*pair.driven);
    for (int via : {0, 1}) {
      for (int rank : {0, 1}) check_backward(*pair.threaded, via, rank);
    }
  }
  SUBCASE("on all workers") {
    rig::Cluster<3, Engine> cluster;
    rig::Driver<Engine> one(cluster[1]), two(cluster[2]);
    for (int via : {0, 1, 2}) {
      for (int rank : {0, 1, 2}) check_backward(cluster[0], via, rank);
    }
  }
  SUBCASE("in a group of one") {
    Engine alone(rig::options<Engine>());
    check_backward(alone, 0, 0);
    CHECK(rig::eventually([&] {
      alone.poll();
      return alone.debug_info().autograd_contexts == 0;
    }));
  }
}

TEST_CASE_TEMPLATE("what an inline engine runs while it waits runs in grad mode", Engine,
                   INLINE_ENGINES) {
  Mixed<Engine> pair;
  check_grad_mode(*pair.driven);
}

TEST_CASE_TEMPLATE("inline engines shut down together, and alone", Engine, INLINE_ENGINES) {
  SUBCASE("all by themselves") {
    rig::Cluster<3, Engine> cluster;
    cluster.shutdown(30s);
    CHECK(rig::error_of([&] { cluster[0].template rpc_sync<add_one>(1, 1); }) == errc::closed);
    cluster[0].poll();
  }
  SUBCASE("with one that has threads") {
    Mixed<Engine> pair;
    auto end = ending::in_background([&] { pair.threaded->shutdown(30s); });
    pair.driven->shutdown(30s);
    CHECK(ending::is_over(end));
  }
  SUBCASE("within a time limit") {
    rig::Cluster<2, Engine> cluster;
    CHECK(rig::error_of([&] { cluster[0].shutdown(5ms); }) == errc::timeout);
  }
  SUBCASE("at once, with calls that nobody has driven") {
    rig::Cluster<2, Engine> cluster;
    {
      rig::Driver<Engine> driver(cluster[1]);
      cluster[0].template rpc_sync<add_one>(1, 1);  // they are connected
    }
    auto const call = cluster[0].template rpc_async<add_one>(1, 1);
    auto const here = cluster[0].template rpc_async<add_one>(0, 1);
    cluster[0].stop();
    CHECK(rig::error_of([&] { call.get(); }) == errc::closed);
    CHECK(rig::error_of([&] { here.get(); }) == errc::closed);
    auto const late = cluster[1].template rpc_async<add_one>(0, 1);
    CHECK(rig::error_of([&] { late.get(); }) == errc::closed);
  }
}

}  // namespace inline_engines_tests
