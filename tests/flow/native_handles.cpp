// Engines in an event loop that is not theirs: poll(2) on their native handles, and nothing else.
#include "rig.hpp"

#include <ATen/ops/ones.h>

namespace native_handles_tests {

namespace {
namespace native_handles {

using namespace std::chrono_literals;
using distgrad::errc;
using distgrad::InlineQueues;
using distgrad::PollResult;
using distgrad::time_point;
using InlineLoopback = distgrad::DistEngine<distgrad::LoopbackTransport, InlineQueues>;
using InlineTcp = distgrad::DistEngine<distgrad::TcpTransport, InlineQueues>;
#define LOOP_ENGINES native_handles::InlineLoopback, native_handles::InlineTcp

constexpr int patience_ms = 30000;

int add_one(int x) { return x + 1; }
at::Tensor twice(at::Tensor const& x) { return x.mul(2); }

/// A pair of engines and one loop, on one thread, that sleeps whenever they tell it to.
template <class Engine>
class Loop {
 public:
  Loop() {
    auto const hello = pair_[0].template rpc_async<add_one>(1, 0);
    run_until_ready(hello);
  }
  Engine& operator[](std::size_t i) { return pair_[i]; }

  template <class Future>
  void run_until_ready(Future const& future) {
    while (!future.is_ready()) REQUIRE(turn());
  }
  /// Until there is nothing to do.
  void settle() {
    while (poll().steps != 0) {
    }
  }
  bool is_ready() { return sleep(0) != 0; }
  /// @return false if it slept too long.
  bool turn() {
    auto const result = poll();
    auto const timeout = result.timeout_ms();
    auto const bounded = timeout < 0 ? patience_ms : std::min(timeout, patience_ms);
    return sleep(bounded) != 0 || bounded < patience_ms;
  }
  PollResult poll() {
    auto const a = pair_[0].poll(), b = pair_[1].poll();
    return {a.steps + b.steps, std::min(a.next, b.next)};
  }
  int sleep(int milliseconds) {
    auto handles = pair_[0].native_handles();
    for (auto const& handle : pair_[1].native_handles()) handles.push_back(handle);
    return ::poll(handles.data(), handles.size(), milliseconds);
  }

 private:
  rig::Cluster<2, Engine> pair_;
};

}  // namespace native_handles
}  // namespace

using namespace native_handles;

TEST_CASE_TEMPLATE("a loop that sleeps on native handles serves every call", Engine, LOOP_ENGINES) {
  Loop<Engine> loop;
  for (int i = 0; i < 50; ++i) {
    auto const there = loop[0].template rpc_async<add_one>(1, i);
    auto const back = loop[1].template rpc_async<add_one>(0, i);
    auto const here = loop[0].template rpc_async<add_one>(0, i);
    loop.run_until_ready(there);
    loop.run_until_ready(back);
    loop.run_until_ready(here);
    CHECK(there.get() + back.get() + here.get() == 3 * i + 3);
  }
}

TEST_CASE_TEMPLATE("payloads that no socket takes at once pass through such a loop", Engine,
                   LOOP_ENGINES) {
  Loop<Engine> loop;
  auto const x = at::ones({std::int64_t{4} << 20});  // 16 MiB
  auto const there = loop[0].template rpc_async<twice>(1, x);
  auto const back = loop[1].template rpc_async<twice>(0, x);
  loop.run_until_ready(there);
  loop.run_until_ready(back);
  CHECK(there.get().equal(x.mul(2)));
  CHECK(back.get().equal(x.mul(2)));
}

TEST_CASE_TEMPLATE("handles are quiet until something is asked of the engine", Engine,
                   LOOP_ENGINES) {
  Loop<Engine> loop;
  loop.settle();
  CHECK_FALSE(loop.is_ready());
  SUBCASE("a call of itself, between poll and sleep") {
    auto const call = loop[0].template rpc_async<add_one>(0, 1);
    CHECK(loop.is_ready());
  }
  SUBCASE("a call of its peer") {
    auto const call = loop[0].template rpc_async<add_one>(1, 1);
    CHECK(loop.is_ready());
  }
  SUBCASE("a call by another thread, while the loop sleeps") {
    std::thread caller([&] { loop[0].template rpc_async<add_one>(0, 1); });
    CHECK(loop.sleep(patience_ms) > 0);
    caller.join();
  }
  SUBCASE("the end of an engine") {
    loop[1].stop();
    CHECK(loop.is_ready());
  }
}

TEST_CASE_TEMPLATE("a call with an earlier deadline than the sleep's ends the sleep", Engine,
                   LOOP_ENGINES) {
  Loop<Engine> loop;
  auto& engine = loop[0];
  auto const call = engine.template rpc_async<add_one>(distgrad::within(20s, 1), 1);
  CHECK(engine.poll().next <= distgrad::Clock::now() + 21s);
  while (engine.poll().steps != 0) {
  }
  auto handles = engine.native_handles();
  REQUIRE(::poll(handles.data(), handles.size(), 0) == 0);
  auto const urgent = engine.template rpc_async<add_one>(distgrad::within(20ms, 1), 1);
  CHECK(::poll(handles.data(), handles.size(), 0) > 0);
  while (!urgent.is_ready()) {
    auto const result = engine.poll();
    if (urgent.is_ready()) break;
    auto now = engine.native_handles();
    CHECK(result.next <= distgrad::Clock::now() + 21ms);
    ::poll(now.data(), now.size(), result.timeout_ms());
  }
  CHECK(rig::error_of([&] { urgent.get(); }) == errc::timeout);
}

TEST_CASE("an engine over TCP asks to be polled while its connections are being made") {
  rig::Cluster<2, InlineTcp> pair;
  PollResult result;
  do {
    result = pair[0].poll();
  } while (result.steps != 0);  // nobody polls worker1, which is the one that connects
  CHECK(result.next <= distgrad::Clock::now() + 10ms);
}

}  // namespace native_handles_tests
