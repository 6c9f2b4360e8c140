// What a program gets that polls its engine in bounded slices.
#include "rig.hpp"

#include <distgrad/testing/manual_clock.hpp>

#include <ATen/ops/ones.h>

namespace poll_budget_tests {

namespace {
namespace poll_budget {

using namespace std::chrono_literals;
using distgrad::errc;
using distgrad::InlineQueues;
using distgrad::PollBudget;
using distgrad::time_point;
using InlineLoopback = distgrad::DistEngine<distgrad::LoopbackTransport, InlineQueues>;
using InlineTcp = distgrad::DistEngine<distgrad::TcpTransport, InlineQueues>;
#define POLLED_ENGINES poll_budget::InlineLoopback, poll_budget::InlineTcp

std::size_t runs = 0;
std::size_t count_run() { return ++runs; }

/// What a function takes of the time that stands still otherwise.
distgrad::testing::ManualClock* clock_of_handlers = nullptr;
void take_a_millisecond() {
  ++runs;
  clock_of_handlers->advance(1ms);
}

at::Tensor chain(at::Tensor const& x) { return x.mul(2).add(1).mul(2).add(1).mul(2); }

template <auto F, class Engine>
auto call_often(Engine& engine, int rank, std::size_t times) {
  std::vector<decltype(engine.template rpc_async<F>(rank))> calls;
  for (std::size_t i = 0; i < times; ++i) calls.push_back(engine.template rpc_async<F>(rank));
  return calls;
}

template <class Calls>
bool are_ready(Calls const& calls) {
  return std::ranges::all_of(calls, [](auto const& call) { return call.is_ready(); });
}

template <class Engine>
struct Pair : rig::Cluster<2, Engine> {
  explicit Pair(std::shared_ptr<distgrad::testing::ManualClock> clock = nullptr)
      : rig::Cluster<2, Engine>([&] {
          auto options = rig::options<Engine>();
          options.clock = clock;
          return options;
        }()) {}

  /// Until they know each other and nothing is left to do.
  void settle() {
    auto const hello = (*this)[0].template rpc_async<count_run>(1);
    REQUIRE(rig::eventually([&] {
      auto const steps = (*this)[0].poll().steps + (*this)[1].poll().steps;
      return steps == 0 && hello.is_ready();
    }));
    runs = 0;
  }
};

}  // namespace poll_budget
}  // namespace

using namespace poll_budget;

TEST_CASE_TEMPLATE("a burst of 1000 calls is worked off in slices", Engine, POLLED_ENGINES) {
  std::size_t slice = 0;
  SUBCASE("of one step") { slice = 1; }
  SUBCASE("of seven") { slice = 7; }
  SUBCASE("of 64") { slice = 64; }
  CAPTURE(slice);
  Pair<Engine> pair;
  pair.settle();
  auto calls = call_often<count_run>(pair[0], 1, 1000);
  auto own = call_often<count_run>(pair[1], 1, 10);  // messages to itself count, too
  std::size_t polls = 0, steps = 0;
  REQUIRE(rig::eventually([&] {
    auto const before = runs;
    auto const result = pair[1].poll({.steps = slice});
    CHECK(result.steps <= slice);
    CHECK(runs - before <= result.steps);
    if (result.steps != 0) CHECK(result.next == time_point::min());
    polls += result.steps != 0;
    steps += result.steps;
    pair[0].poll({.steps = slice});
    return are_ready(calls) && are_ready(own);
  }));
  CHECK(runs == 1010);
  CHECK(steps >= 2020);  // each is a message and a task
  CHECK(polls * slice >= steps);
}

TEST_CASE_TEMPLATE("a poll ends soon after its time", Engine, POLLED_ENGINES) {
  auto const clock = std::make_shared<distgrad::testing::ManualClock>();
  clock_of_handlers = clock.get();
  Pair<Engine> pair(clock);
  pair.settle();
  auto const calls = call_often<take_a_millisecond>(pair[0], 1, 100);
  std::size_t most = 0;
  auto const work_off = [&](std::chrono::nanoseconds time) {
    return rig::eventually([&] {
      auto const before = runs;
      pair[1].poll({.time = time});
      most = std::max(most, runs - before);
      pair[0].poll();
      return are_ready(calls);
    });
  };
  SUBCASE("of five milliseconds") {
    REQUIRE(work_off(5ms));
    CHECK(most == 5);
  }
  SUBCASE("of none: it goes on all the same") {
    REQUIRE(work_off(0ms));
    CHECK(most == 1);
  }
  CHECK(runs == 100);
}

TEST_CASE_TEMPLATE("a loop that sleeps as long as it is told meets every deadline", Engine,
                   POLLED_ENGINES) {
  auto const clock = std::make_shared<distgrad::testing::ManualClock>();
  Pair<Engine> pair(clock);
  pair.settle();
  auto const start = clock->now();
  auto const late = pair[0].template rpc_async<count_run>(distgrad::within(50ms, 1));
  auto const soon = pair[0].template rpc_async<count_run>(distgrad::within(20ms, 1));
  std::vector<std::chrono::nanoseconds> slept;  // nobody polls worker1
  while (!soon.is_ready() || !late.is_ready()) {
    auto const result = pair[0].poll({.steps = 1});
    if (result.steps != 0) continue;
    if (soon.is_ready() && late.is_ready()) break;
    REQUIRE(result.next > clock->now());
    REQUIRE(result.next != time_point::max());
    slept.push_back(result.next - clock->now());
    clock->advance_to(result.next);
  }
  CHECK(rig::error_of([&] { soon.get(); }) == errc::timeout);
  CHECK(rig::error_of([&] { late.get(); }) == errc::timeout);
  CHECK(slept.size() == 2);
  CHECK(clock->now() - start >= 50ms);
  CHECK(clock->now() - start <= 51ms);
}

TEST_CASE_TEMPLATE("an engine without anything to do says so", Engine, POLLED_ENGINES) {
  Pair<Engine> pair;
  pair.settle();
  REQUIRE(rig::eventually([&] { return pair[0].poll().next != time_point::min(); }));
  auto const before = distgrad::Clock::now();
  CHECK(pair[0].poll({.until = before + 5ms}).steps == 0);
  CHECK(distgrad::Clock::now() >= before + 5ms);
}

TEST_CASE_TEMPLATE("a backward pass goes through a peer that polls two steps at a time", Engine,
                   POLLED_ENGINES) {
  Pair<Engine> pair;
  std::atomic<bool> ending{false};
  std::size_t most = 0;
  std::thread server([&] {
    while (!ending) most = std::max(most, pair[1].poll({.steps = 2}).steps);
  });
  auto const x = at::ones({3}).set_requires_grad(true);
  {
    auto context = pair[0].context();
    auto const y = pair[0].template rpc_sync<chain>(1, x);
    context.backward({y.sum()});
    CHECK(context.gradient(x).equal(at::ones({3}).mul(8)));
  }
  ending = true;
  server.join();
  CHECK(most == 2);
}

}  // namespace poll_budget_tests
