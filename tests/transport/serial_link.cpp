#include <distgrad/transport/detail/serial_link.hpp>

#include <doctest/doctest.h>

#include "noise.hpp"

namespace serial_link_tests {

namespace {
namespace link {

using namespace std::chrono_literals;
using namespace distgrad;
using detail::SerialLink;
using State = SerialLink::State;
using Bytes = std::vector<std::byte>;

/// One end, with what it got.
struct End {
  SerialLink link;
  Bytes stream = {};
  std::size_t arrived = 0;
};

detail::SerialLinkOptions small_pieces() { return {16, 4, 20s, 30s}; }

End end_of(std::uint32_t self, std::uint32_t session, time_point now, std::string secret = "secret",
           std::uint32_t incarnation = 0) {
  WorkerInfo const workers[] = {{"zero", {0}, {5}}, {"one", {1}, {incarnation ? incarnation : 5}}};
  return {SerialLink(small_pieces(), {workers[self], workers[1 - self], std::move(secret), session},
                     now)};
}

detail::OutgoingFrame frame(std::uint64_t number, std::size_t size) {
  Message message{.kind = FrameKind::call, .call = {number}};
  for (std::size_t i = 0; i < size; ++i) message.metadata.push_back(std::byte(number + i * 7));
  return {std::move(message), nullptr};
}

/// The bytes that frames 0 to `count` make, of growing sizes.
Bytes stream_of(std::size_t count) {
  Bytes all;
  for (std::size_t i = 0; i < count; ++i) {
    auto one = frame(i, i % 90);
    std::array<iovec, 4> parts;
    for (auto const& part : std::span(parts).first(one.gather(parts))) {
      auto const* at = static_cast<std::byte const*>(part.iov_base);
      all.insert(all.end(), at, at + part.iov_len);
    }
  }
  return all;
}

/// Two ends, the line between them, and the time.
struct Wire {
  time_point now{std::chrono::hours(1)};
  End zero = end_of(0, 100, now), one = end_of(1, 200, now);
  noise::Line there{0, {}}, back{0, {}};

  /// Carries all that is to be said from one end to the other. @return whether anything was.
  bool carry(End& from, End& to, noise::Line& line) {
    bool any = false;
    for (;;) {
      auto const said = from.link.next_line(now);
      if (said.empty()) return any;
      any = true;
      to.link.receive(line.pass(said), now, to.stream);
    }
  }
  void turn() {
    for (auto* end : {&zero, &one}) end->link.tick(now);
    while (carry(zero, one, there) | carry(one, zero, back)) {
    }
    for (auto* end : {&zero, &one}) end->arrived += end->link.take_arrived().size();
  }
  /// Turns and moves the time until `done` or for `limit`.
  template <class Done>
  bool run(Done done, Clock::duration limit) {
    for (auto const until = now + limit; now < until; now += 5ms) {
      turn();
      if (done()) return true;
    }
    return false;
  }
  bool is_open() const {
    return zero.link.state() == State::open && one.link.state() == State::open;
  }
};

}  // namespace link
}  // namespace

using namespace link;

TEST_CASE("two ends open the line, whoever begins") {
  Wire wire;
  SUBCASE("both at once") {}
  SUBCASE("one long before the other") {
    for (int i = 0; i < 100; ++i, wire.now += 50ms) {
      wire.zero.link.tick(wire.now);
      wire.zero.link.next_line(wire.now);  // nobody hears it
    }
  }
  CHECK(wire.run([&] { return wire.is_open(); }, 2s));
}

TEST_CASE("data opens a line whose last greeting was lost") {
  Wire wire;
  wire.zero.link.tick(wire.now);
  wire.one.link.receive(wire.zero.link.next_line(wire.now), wire.now, wire.one.stream);
  wire.zero.link.receive(wire.one.link.next_line(wire.now), wire.now, wire.zero.stream);
  REQUIRE(wire.zero.link.state() == State::open);
  wire.zero.link.next_line(wire.now);  // the answering hello is lost
  REQUIRE(wire.one.link.state() == State::connecting);
  wire.zero.link.push(frame(0, 0));
  wire.carry(wire.zero, wire.one, wire.there);
  CHECK(wire.one.link.state() == State::open);
  CHECK(wire.one.stream.size() == 40);
}

TEST_CASE("ends that do not belong together decline each other, and say why") {
  Wire wire;
  error_code expected;
  SUBCASE("another secret") {
    wire.one = end_of(1, 200, wire.now, "guess");
    expected = errc::bad_secret;
  }
  SUBCASE("another worker") {
    wire.one = end_of(0, 200, wire.now);
    expected = errc::unknown_worker;
  }
  SUBCASE("another life than the group knows") {
    wire.one = end_of(1, 200, wire.now, "secret", 6);
    expected = errc::refused;
  }
  CHECK(wire.run([&] { return wire.one.link.state() == State::ended; }, 2s));
  CHECK(wire.one.link.why() == expected);
  CHECK(wire.zero.link.state() != State::open);
}

TEST_CASE("an end of another protocol version is told apart from noise") {
  Wire wire;
  detail::SerialHello hello;
  hello.version = protocol_version + 1;
  hello.session = 9;
  Bytes packet, line;
  detail::write_hello(hello, packet);
  detail::write_line(packet, line);
  wire.zero.link.receive(line, wire.now, wire.zero.stream);
  CHECK(wire.zero.link.why() == errc::version_mismatch);
  CHECK_FALSE(wire.zero.link.next_line(wire.now).empty());  // so that the other learns it, too
}

TEST_CASE("nobody at the other end") {
  Wire wire;
  for (auto const until = wire.now + 29s; wire.now < until; wire.now += 1s) {
    wire.zero.link.tick(wire.now);
    CHECK(wire.zero.link.state() == State::connecting);
  }
  wire.now += 1s;
  wire.zero.link.tick(wire.now);
  CHECK(wire.zero.link.why() == errc::unreachable);
}

TEST_CASE("a peer that started anew is a lost one, and is refused") {
  Wire wire;
  REQUIRE(wire.run([&] { return wire.is_open(); }, 2s));
  wire.zero = end_of(0, 101, wire.now);
  CHECK(wire.run([&] { return wire.zero.link.state() == State::ended; }, 2s));
  CHECK(wire.one.link.why() == errc::peer_lost);
  CHECK(wire.zero.link.why() == errc::refused);
}

TEST_CASE("a peer that acknowledges nothing is given up, one that says nothing is not") {
  Wire wire;
  REQUIRE(wire.run([&] { return wire.is_open(); }, 2s));
  CHECK_FALSE(wire.run([&] { return !wire.is_open(); }, 100s));
  wire.zero.link.push(frame(0, 100));
  wire.there = noise::Line(0, {.lost = 1});
  auto const since = wire.now;
  CHECK(wire.run([&] { return wire.zero.link.state() == State::ended; }, 100s));
  CHECK(wire.zero.link.why() == errc::peer_lost);
  CHECK(wire.now - since >= 20s);
  CHECK(wire.now - since < 30s);
  CHECK(wire.zero.link.take_unfinished().size() == 1);
}

TEST_CASE("an end that has ended still acknowledges, so that its peer need not wait") {
  Wire wire;
  REQUIRE(wire.run([&] { return wire.is_open(); }, 2s));
  wire.one.link.end(errc::closed);
  wire.zero.link.push(frame(0, 100));
  CHECK(wire.run([&] { return wire.zero.link.has_arrived(); }, 1s));
  CHECK(wire.one.stream.empty());
}

TEST_CASE("over a noisy line all arrives unchanged and in order, both ways") {
  noise::Rates const kinds[] = {
      {},
      {.flipped_bit = 0.005},
      {.lost = 0.005},
      {.garbage = 0.01},
      {.burst = 0.002},
      {.flipped_bit = 0.003, .lost = 0.003, .garbage = 0.003, .burst = 0.001}};
  auto const expected = stream_of(100);
  std::uint64_t damaged = 0, resent = 0;
  for (unsigned seed = 0; seed < 240; ++seed) {
    CAPTURE(seed);
    Wire wire;
    wire.there = noise::Line(2 * seed, kinds[seed % 6]);
    wire.back = noise::Line(2 * seed + 1, kinds[(seed / 6) % 6]);
    for (std::size_t i = 0; i < 100; ++i) {
      wire.zero.link.push(frame(i, i % 90));
      wire.one.link.push(frame(i, i % 90));
    }
    bool const all =
        wire.run([&] { return wire.zero.link.has_arrived() && wire.one.link.has_arrived(); }, 1h);
    REQUIRE(all);
    REQUIRE(wire.zero.stream == expected);
    REQUIRE(wire.one.stream == expected);
    REQUIRE(wire.zero.arrived == 100);
    REQUIRE(wire.one.arrived == 100);
    damaged += wire.zero.link.statistics().packets_damaged;
    resent += wire.zero.link.statistics().packets_resent;
    if (seed % 36 == 0) REQUIRE(wire.zero.link.statistics().packets_damaged == 0);
  }
  CHECK(damaged > 1000);  // it was noisy
  CHECK(resent > 1000);
}

TEST_CASE("a line that becomes useless delivers a beginning, and the rest is reported") {
  auto const expected = stream_of(100);
  for (unsigned seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Wire wire;
    REQUIRE(wire.run([&] { return wire.is_open(); }, 2s));
    for (std::size_t i = 0; i < 100; ++i) wire.zero.link.push(frame(i, i % 90));
    wire.there = noise::Line(seed, {.flipped_bit = 0.01, .burst = 0.1});
    bool const over = wire.run(
        [&] { return wire.zero.link.state() == State::ended || wire.zero.link.has_arrived(); },
        10h);
    REQUIRE(over);
    REQUIRE(wire.one.stream.size() <= expected.size());
    REQUIRE(std::equal(wire.one.stream.begin(), wire.one.stream.end(), expected.begin()));
    auto const unfinished = wire.zero.link.take_unfinished().size();
    REQUIRE(wire.zero.arrived + unfinished == 100);  // each is in one of the two
    if (unfinished != 0) REQUIRE(wire.zero.link.why() == errc::peer_lost);
  }
}

}  // namespace serial_link_tests
