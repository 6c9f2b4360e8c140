// How groups and single workers end.
#include "ending.hpp"

#include <atomic>
#include <future>
#include <thread>

#include <ATen/ops/ones.h>

namespace shutdown_tests {

namespace {
namespace shutdown_flow {

using namespace std::chrono_literals;
using distgrad::errc;
using distgrad::Future;
using distgrad::this_worker;
using distgrad::Worker;
using ending::gate;
using ending::in_background;
using ending::is_over;

int add_one(int x) { return x + 1; }
int held(int x) { return gate.pass() ? x : -1; }
std::atomic<int> visits{0};
/// Goes on to the next worker without anybody waiting for it.
void wander(int hops) {
  ++visits;
  auto& self = this_worker();
  if (hops > 0) self.rpc_async<wander>((self.rank() + 1) % int(self.group().size()), hops - 1);
}
int ask(int rank, int x) { return this_worker().rpc_sync<held>(rank, x); }

/// Its backward pass is held at the gate.
at::Tensor scale_and_hold(at::Tensor const& x) {
  auto const y = x.mul(2);
  y.register_hook([](at::Tensor gradient) {
    gate.pass();
    return gradient;
  });
  return y;
}
at::Tensor scale(at::Tensor const& x) { return x.mul(2); }

void check_backward(Worker& self, int rank) {
  auto const x = at::ones({2}).set_requires_grad(true);
  auto context = self.context();
  context.backward({self.rpc_sync<scale>(rank, x).sum()});
  CHECK(context.gradient(x).equal(at::ones({2}).mul(2)));
}

void check_everything_is_closed(Worker& self, distgrad::RRef<int> const& rref) {
  CHECK(rig::error_of([&] { self.rpc_sync<add_one>(1, 1); }) == errc::closed);
  CHECK(rig::error_of([&] { self.rpc_sync<add_one>(self.rank(), 1); }) == errc::closed);
  CHECK(rig::error_of([&] { self.rpc_async<add_one>(1, 1).get(); }) == errc::closed);
  CHECK(rig::error_of([&] { self.remote<add_one>(1, 1).to_here(); }) == errc::closed);
  CHECK(rig::error_of([&] { rref.to_here(); }) == errc::closed);
  CHECK(self.debug_info().pending_calls == 0);
  CHECK(self.debug_info().call_deadlines == 0);
  CHECK(self.name() == "worker0");  // what it knows, it still knows
}

void work(Worker& self, int calls) {
  auto const next = (self.rank() + 1) % int(self.group().size());
  for (int i = 0; i < calls; ++i) CHECK(self.rpc_sync<add_one>(next, i) == i + 1);
}

}  // namespace shutdown_flow
}  // namespace

using namespace shutdown_flow;

TEST_CASE_TEMPLATE("[RPC-43] who is done goes on serving until everybody is", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  auto first = in_background([&] { cluster[1].shutdown(); });
  auto second = in_background([&] { cluster[0].shutdown(); });
  // Neither has left: both answer, for as long as the last one likes.
  for (int i = 0; i < 200; ++i) CHECK(cluster[2].template rpc_sync<add_one>(i % 2, i) == i + 1);
  CHECK_FALSE(is_over(first, 0s));
  CHECK_FALSE(is_over(second, 0s));
  cluster[2].shutdown();
  CHECK(is_over(first));
  CHECK(is_over(second));
  first.get();
  second.get();
}

TEST_CASE_TEMPLATE("[RPC-43] workers with uneven workloads end together", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<4, Engine> cluster;
  std::vector<std::future<void>> ends;
  for (int rank = 0; rank < 4; ++rank) {
    ends.push_back(in_background([&cluster, rank] {
      work(cluster[rank], 40 * ((rank + 2) % 4));
      cluster[rank].shutdown();
    }));
  }
  for (auto& end : ends) {
    REQUIRE(is_over(end));
    end.get();
  }
}

TEST_CASE_TEMPLATE("[RPC-43] calls that cause calls are finished before anybody leaves", Engine,
                   DISTGRAD_ENGINES) {
  for (int round = 0; round < 10; ++round) {
    rig::Cluster<3, Engine> cluster;
    visits = 0;
    for (int rank = 0; rank < 3; ++rank) {
      cluster[rank].template rpc_async<wander>((rank + 1) % 3, 30);
    }
    cluster.shutdown(30s);
    CHECK(visits == 3 * 31);
  }
}

TEST_CASE_TEMPLATE("[RPC-43] a shutdown waits for a handler that runs long", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  gate.shut();
  auto const call = cluster[0].template rpc_async<held>(1, 7);
  REQUIRE(gate.wait_for_visitor());
  auto end = in_background([&] { cluster.shutdown(); });
  CHECK(rig::error_of([&] { cluster[0].shutdown(1ms); }) == errc::timeout);
  CHECK_FALSE(is_over(end, 0s));
  gate.open();
  REQUIRE(is_over(end));
  end.get();
  CHECK(call.get() == 7);
}

TEST_CASE_TEMPLATE("[RPC-43] a second shutdown, or a stop after it, does nothing", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  cluster.shutdown();
  cluster.shutdown();
  cluster[0].stop();
  cluster[0].shutdown();
}

TEST_CASE_TEMPLATE("[RPC-44] a shutdown that takes too long names who still works", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  CHECK(rig::error_of([&] { cluster[1].shutdown(1ms); }) == errc::timeout);
  REQUIRE(rig::eventually([&] {  // until rank 0 has heard of worker1
    auto const text = rig::text_of([&] { cluster[0].shutdown(1ms); });
    CHECK(text.find("'worker2'") != text.npos);
    CHECK(text.find("1 ms") != text.npos);
    return text.find("'worker1'") == text.npos;
  }));
  // Nobody has ended.
  for (auto& engine : cluster) work(*engine, 5);
  cluster.shutdown();
}

TEST_CASE_TEMPLATE("[RPC-45] after a shutdown everything is refused", Engine, DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  auto const rref = cluster[0].template remote<add_one>(1, 1);
  CHECK(rref.to_here() == 2);
  cluster.shutdown();
  check_everything_is_closed(cluster[0], rref);
}

TEST_CASE_TEMPLATE("[RPC-45] a stop fails the calls under way, and peers learn of it", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  gate.shut();
  auto const own = cluster[0].template rpc_async<held>(1, 1);
  auto const through = cluster[2].template rpc_async<ask>(0, 1, 2);
  auto const rref = cluster[0].template remote<add_one>(1, 1);
  REQUIRE(gate.wait_for_visitor(2));
  auto stop = in_background([&] { cluster[0].stop(); });
  REQUIRE(own.wait_for(30s));
  CHECK(rig::error_of([&] { own.get(); }) == errc::closed);
  CHECK(rig::text_of([&] { own.get(); }).find("this engine") != std::string::npos);
  REQUIRE(is_over(stop));
  check_everything_is_closed(cluster[0], rref);
  // The peers: a call that was there, and later ones.
  REQUIRE(through.wait_for(30s));
  CHECK(rig::error_of([&] { through.get(); }) == errc::closed);
  CHECK(rig::text_of([&] { through.get(); }).find("'worker0'") != std::string::npos);
  CHECK(rig::error_of([&] { cluster[2].template rpc_sync<add_one>(0, 1); }) == errc::closed);
  gate.open();
  // They go on, and end without the one that left.
  work(cluster[1], 5);
  CHECK(cluster[2].template rpc_sync<add_one>(1, 1) == 2);
  auto end = in_background([&] { cluster[1].shutdown(); });
  cluster[2].shutdown();
  CHECK(is_over(end));
}

TEST_CASE_TEMPLATE("[RPC-45] a group ends without a worker that stopped by itself", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  cluster[1].stop();
  auto end = in_background([&] { cluster[2].shutdown(); });
  cluster[0].shutdown(30s);
  CHECK(is_over(end));
}

TEST_CASE_TEMPLATE("[RPC-45] a stop ends a shutdown of the same engine", Engine, DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  auto waiting = in_background([&] { cluster[1].shutdown(0s); });
  REQUIRE(rig::eventually([&] {  // rank 0 knows, so the shutdown is under way
    return rig::text_of([&] { cluster[0].shutdown(1ms); }).find("'worker1'") == std::string::npos;
  }));
  CHECK_FALSE(is_over(waiting, 0s));
  cluster[1].stop();
  REQUIRE(is_over(waiting));
  CHECK(rig::error_of([&] { waiting.get(); }) == errc::closed);
  cluster[1].shutdown();
}

TEST_CASE_TEMPLATE("an engine with work under way can be destroyed at any time", Engine,
                   DISTGRAD_ENGINES) {
  for (int round = 0; round < 10; ++round) {
    auto cluster = std::make_unique<rig::Cluster<3, Engine>>();
    for (auto& engine : *cluster) work(*engine, 1);  // all are connected
    std::vector<Future<int>> calls, continued;
    std::vector<distgrad::RRef<int>> rrefs;
    for (int i = 0; i < 30; ++i) {
      auto& self = (*cluster)[i % 3];
      self.template rpc_async<wander>((i + 1) % 3, 1000);
      calls.push_back(self.template rpc_async<add_one>((i + 1) % 3, i));
      continued.push_back(calls.back().then([](auto const& call) { return call.get(); }));
      rrefs.push_back(self.template remote<add_one>((i + 1) % 3, i));
    }
    auto end = in_background([&] { cluster.reset(); });
    REQUIRE(is_over(end));
    for (int i = 0; i < 30; ++i) {
      for (auto const& future : {calls[i], continued[i]}) {
        REQUIRE(future.wait_for(30s));
        int value = i + 1;
        auto const code = rig::error_of([&] { value = future.get(); });
        CAPTURE(code.message());
        CHECK((!code || code == errc::closed));
        CHECK(value == i + 1);
      }
      CHECK(rig::error_of([&] { rrefs[i].to_here(); }) == errc::closed);
    }
  }
}

TEST_CASE_TEMPLATE("a handler that waits for a call does not hold up the end of its engine", Engine,
                   DISTGRAD_ENGINES) {
  gate.shut();
  auto cluster = std::make_unique<rig::Cluster<3, Engine>>();
  auto const call = (*cluster)[2].template rpc_async<ask>(0, 1, 5);
  REQUIRE(gate.wait_for_visitor());  // worker1 is held, worker0 waits for it
  auto stop = in_background([&] { (*cluster)[0].stop(); });
  CHECK(is_over(stop));
  gate.open();
  auto end = in_background([&] { cluster.reset(); });
  CHECK(is_over(end));
  REQUIRE(call.wait_for(30s));
  CHECK(rig::error_of([&] { call.get(); }) == errc::closed);
}

TEST_CASE_TEMPLATE("a stop ends backward passes, here and where they need the worker", Engine,
                   DISTGRAD_ENGINES) {
  for (int stopped : {0, 1}) {
    CAPTURE(stopped);
    rig::Cluster<3, Engine> cluster;
    gate.shut();
    auto pass = in_background([&] {
      Worker& self = cluster[0];
      auto const x = at::ones({2}).set_requires_grad(true);
      auto context = self.context();
      context.backward({self.rpc_sync<scale_and_hold>(1, x).sum()});
    });
    REQUIRE(gate.wait_for_visitor());  // worker1 is in the middle of it
    auto stop = in_background([&] { cluster[stopped].stop(); });
    REQUIRE(is_over(pass));
    CHECK(rig::error_of([&] { pass.get(); }) == errc::closed);
    gate.open();
    REQUIRE(is_over(stop));
    CHECK(cluster[0].debug_info().backward_passes == 0);
    check_backward(cluster[2], 1 - stopped);
  }
}

}  // namespace shutdown_tests
