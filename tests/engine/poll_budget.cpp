#include <distgrad/engine/poll_budget.hpp>
//
#include <distgrad/testing/manual_clock.hpp>

#include <doctest/doctest.h>

namespace poll_budget_tests {

namespace {

using namespace std::chrono_literals;
using distgrad::PollBudget;
using distgrad::PollResult;
using distgrad::time_point;
using distgrad::detail::PollAllowance;

/// Does as many steps as it may, of `there` ones.
struct Work {
  std::size_t there;
  std::size_t operator()(std::size_t limit) {
    auto const done = std::min(limit, there);
    there -= done;
    return done;
  }
};

TEST_CASE("a budget of steps is spent exactly") {
  distgrad::testing::ManualClock clock;
  PollAllowance left({.steps = 10}, clock);
  CHECK(left.spend(4, Work{100}) == 4);
  CHECK(left.spend(4, Work{1}) == 1);
  CHECK(left.left() == 5);
  CHECK(left.spend(left.left(), Work{100}) == 5);
  CHECK(left.spend(1, Work{100}) == 0);
  CHECK(left.has_time());
}

TEST_CASE("a budget of time ends between two steps, after at least one") {
  distgrad::testing::ManualClock clock;
  PollAllowance left({.steps = 100, .time = 3ms}, clock);
  auto const slow = [&](std::size_t limit) {
    CHECK(limit == 1);
    clock.advance(1ms);
    return limit;
  };
  CHECK(left.spend(100, slow) == 3);
  CHECK_FALSE(left.has_time());
  CHECK(left.spend(100, slow) == 1);
  CHECK(PollAllowance({.time = 0ms}, clock).spend(100, slow) == 1);
  CHECK(PollAllowance({.time = -1ms}, clock).spend(100, slow) == 1);
}

TEST_CASE("work that finds nothing ends a budget of time, too") {
  distgrad::testing::ManualClock clock;
  PollAllowance left({.time = 3ms}, clock);
  CHECK(left.spend(100, Work{2}) == 2);
  CHECK(left.spend(100, Work{0}) == 0);
}

TEST_CASE("the result says how long poll(2) may sleep") {
  time_point const now(1h);
  CHECK(PollResult{.next = time_point::min()}.timeout_ms(now) == 0);
  CHECK(PollResult{.next = now}.timeout_ms(now) == 0);
  CHECK(PollResult{.next = now + 1ns}.timeout_ms(now) == 1);  // not too early, or it would spin
  CHECK(PollResult{.next = now + 20ms}.timeout_ms(now) == 20);
  CHECK(PollResult{.next = now + 24h * 365}.timeout_ms(now) == std::numeric_limits<int>::max());
  CHECK(PollResult{.next = time_point::max()}.timeout_ms(now) == -1);
}

}  // namespace

}  // namespace poll_budget_tests
