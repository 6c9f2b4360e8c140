#include <distgrad/rpc/deadline_wheel.hpp>

#include <map>
#include <random>

#include <doctest/doctest.h>

namespace deadline_wheel_tests {

using namespace distgrad;
using namespace std::chrono_literals;

namespace {

constexpr time_point start{std::chrono::hours(1000)};
Deadline due(std::chrono::nanoseconds offset) {
  return {start + std::chrono::duration_cast<Clock::duration>(offset)};
}
std::vector<CallId> ids(std::initializer_list<std::uint64_t> values) {
  std::vector<CallId> found;
  for (auto value : values) found.push_back({value});
  return found;
}

}  // namespace

TEST_CASE("an empty wheel has nothing to do") {
  DeadlineWheel wheel;
  CHECK(wheel.size() == 0);
  CHECK_FALSE(wheel.next());
  CHECK(wheel.expire(start + 1h).empty());
}

TEST_CASE("a call expires once, at its deadline and not before") {
  DeadlineWheel wheel;
  wheel.add({1}, due(5ms));
  CHECK(wheel.size() == 1);
  CHECK((wheel.next() == start + 5ms));
  CHECK(wheel.expire(start + 4999us).empty());
  CHECK((wheel.expire(start + 5ms) == ids({1})));
  CHECK(wheel.expire(start + 6ms).empty());
  CHECK(wheel.size() == 0);
  CHECK_FALSE(wheel.next());
}

TEST_CASE("a deadline between two slots expires in the later one") {
  DeadlineWheel wheel;
  wheel.add({1}, due(5ms + 1ns));
  CHECK(wheel.expire(start + 5ms + 1ns).empty());
  CHECK((wheel.next() == start + 6ms));
  CHECK((wheel.expire(start + 6ms) == ids({1})));
}

TEST_CASE("calls expire in the order of their deadlines, the nearest is next") {
  DeadlineWheel wheel;
  wheel.add({1}, due(30ms));
  wheel.add({2}, due(10ms));
  wheel.add({3}, due(20ms));
  wheel.add({4}, due(10ms));
  CHECK((wheel.next() == start + 10ms));
  CHECK((wheel.expire(start + 20ms) == ids({2, 4, 3})));
  CHECK(wheel.size() == 1);
  CHECK((wheel.next() == start + 30ms));
}

TEST_CASE("a call without a deadline is not kept") {
  DeadlineWheel wheel;
  auto const ticket = wheel.add({1}, Deadline::never());
  CHECK(wheel.size() == 0);
  CHECK_FALSE(wheel.next());
  wheel.cancel({1}, ticket);
  CHECK(wheel.size() == 0);
}

TEST_CASE("a cancelled call does not expire, and others of its slot do") {
  DeadlineWheel wheel;
  auto const first = wheel.add({1}, due(5ms));
  wheel.add({2}, due(5ms));
  wheel.cancel({1}, first);
  wheel.cancel({1}, first);  // twice is once
  CHECK(wheel.size() == 1);
  CHECK((wheel.expire(start + 1s) == ids({2})));
  wheel.cancel({1}, first);  // after its slot has gone
  CHECK(wheel.size() == 0);
}

TEST_CASE("a random stream of calls expires as a plain list would") {
  std::mt19937 random(7);
  DeadlineWheel wheel;
  std::map<CallId, std::pair<time_point, DeadlineWheel::Ticket>> list;
  auto now = start;
  for (std::uint64_t call = 1; call < 5000; ++call) {
    auto const due = now + std::chrono::microseconds(random() % 20000);
    list[{call}] = {due, wheel.add({call}, {due})};
    if (random() % 3 == 0) {
      auto const victim = list.lower_bound({random() % call});
      if (victim != list.end()) {
        wheel.cancel(victim->first, victim->second.second);
        list.erase(victim);
      }
    }
    now += std::chrono::microseconds(random() % 300);
    for (auto const expired : wheel.expire(now)) {
      REQUIRE(list.contains(expired));
      REQUIRE(list[expired].first <= now);
      list.erase(expired);
    }
    for (auto const& [id, entry] : list) REQUIRE(entry.first + 1ms > now);
    REQUIRE(wheel.size() == list.size());
  }
}

}  // namespace deadline_wheel_tests
