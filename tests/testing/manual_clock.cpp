#include <distgrad/testing/manual_clock.hpp>

#include <doctest/doctest.h>

namespace manual_clock_tests {

using namespace distgrad;

TEST_CASE("a manual clock moves only when told to, and never back") {
  testing::ManualClock clock;
  auto const start = clock.now();
  CHECK(clock.now() == start);
  clock.advance(milliseconds(5));
  CHECK(clock.now() == start + milliseconds(5));
  clock.advance_to(start);
  CHECK(clock.now() == start + milliseconds(5));
  clock.advance_to(start + milliseconds(9));
  CHECK(clock.now() == start + milliseconds(9));
}

TEST_CASE("a deadline passes when the manual clock reaches it") {
  testing::ManualClock clock;
  auto const deadline = Deadline::after(milliseconds(10), clock.now());
  CHECK(!deadline.has_passed(clock.now()));
  clock.advance(milliseconds(10));
  CHECK(deadline.has_passed(clock.now()));
}

}  // namespace manual_clock_tests
