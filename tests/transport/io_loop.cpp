#include <distgrad/transport/detail/io_loop.hpp>

#include <poll.h>

#include <chrono>

#include <doctest/doctest.h>

namespace io_loop_tests {

namespace {

using namespace distgrad;
using distgrad::detail::IoLoop;

constexpr auto no_limit = std::numeric_limits<std::size_t>::max();
auto const at_once = time_point::min();

bool is_rung(IoLoop& loop) {
  pollfd bell{loop.bell.descriptor(), POLLIN, 0};
  return ::poll(&bell, 1, 0) == 1;
}

/// As Asio does with the handler of a read that found its bytes at once.
template <class Handler>
void queue(IoLoop& loop, Handler handler) {
  boost::asio::post(loop.io, std::move(handler));
}

}  // namespace

TEST_CASE("what is still queued when the loop is left shows on the bell") {
  IoLoop loop([] {});
  int done = 0;
  is_rung(loop);  // from now on there is a descriptor
  loop.run_until(at_once, no_limit);
  REQUIRE(!is_rung(loop));

  for (int i = 0; i < 4; ++i) queue(loop, [&] { ++done; });
  loop.run_until(at_once, 1);
  CHECK(done == 1);
  CHECK(is_rung(loop));
  loop.run_until(Clock::now() + std::chrono::hours(1), no_limit);  // returns after one event
  CHECK(done == 2);
  CHECK(is_rung(loop));
  loop.run_until(at_once, no_limit);
  CHECK(done == 4);
  CHECK(!is_rung(loop));
}

TEST_CASE("what the loop uses is released once, when the I/O thread has left") {
  int released = 0, released_inside = -1;
  {
    IoLoop loop([&] { ++released; });
    queue(loop, [&] {
      loop.turn_once();  // one that closes inside a handler
      loop.end();
      released_inside = released;
    });
    CHECK(loop.run_until(at_once, no_limit) == 1);
    CHECK(released_inside == 0);
    CHECK(released == 1);
    CHECK(loop.run_until(at_once, no_limit) == 0);
  }
  CHECK(released == 1);
}

TEST_CASE("who closes from outside does the work that is ready, and releases at once") {
  int done = 0, released = 0;
  IoLoop loop([&] { ++released; });
  loop.post([&] { ++done; });
  loop.turn_once();
  CHECK(done == 1);
  loop.end();
  CHECK(released == 1);
}

}  // namespace io_loop_tests
