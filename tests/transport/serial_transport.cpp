#include <distgrad/transport/serial_transport.hpp>

#include <distgrad/testing/transport_conformance.hpp>

#include "noisy_terminals.hpp"

namespace serial_transport_tests {

namespace {
namespace serial {

using namespace std::chrono_literals;
using namespace distgrad;
using distgrad::testing::Completions;
using distgrad::testing::eventually;
using distgrad::testing::numbered_message;
using distgrad::testing::patterned_buffer;
using distgrad::testing::RecordingSink;

TransportSetup setup_of(std::uint32_t self, RecordingSink& sink, std::uint32_t world_size = 2) {
  TransportSetup setup;
  setup.self = {self};
  setup.sink = &sink;
  for (std::uint32_t rank = 0; rank < world_size; ++rank) {
    setup.group.push_back({{"worker" + std::to_string(rank), {rank}, {}}, "serial"});
  }
  return setup;
}

/// Two transports on the ends of a noisy line, polled by the test.
struct Pair {
  explicit Pair(unsigned seed, noise::Rates rates, milliseconds give_up_after = 20s)
      : terminals(seed, rates),
        zero({.lines = {{.peer = {1}, .descriptor = terminals.take_end(0)}},
              .piece_bytes = 64,
              .give_up_after = give_up_after}),
        one({.lines = {{.peer = {0}, .descriptor = terminals.take_end(1)}},
             .piece_bytes = 64,
             .give_up_after = give_up_after}) {
    zero.start(setup_of(0, at_zero));
    one.start(setup_of(1, at_one));
  }
  template <class Done>
  bool run(Done done) {
    return eventually([&] {
      zero.run_until(time_point::min());
      one.run_until(time_point::min());
      return done();
    });
  }

  noise::Terminals terminals;
  RecordingSink at_zero, at_one;
  SerialTransport zero, one;
};

/// Whether `arrivals` are the messages 0, 1, 2, ... unchanged.
bool are_right(std::vector<RecordingSink::Arrival> const& arrivals) {
  std::uint64_t next = 0;
  for (auto const& arrival : arrivals) {
    auto const& buffers = arrival.message.buffers;
    bool const same = arrival.message.call.value == next && buffers.size() == 1 &&
                      distgrad::testing::is_same_bytes(
                          buffers[0], patterned_buffer(next * 37 % 500, unsigned(next)));
    if (!same) return false;
    ++next;
  }
  return true;
}

void send(SerialTransport& transport, WorkerId to, std::uint64_t number, Completions& done) {
  transport.async_send(
      to,
      numbered_message(number, "noisy", {patterned_buffer(number * 37 % 500, unsigned(number))}),
      done.next());
}

}  // namespace serial
}  // namespace

using namespace serial;

TEST_CASE("over noisy terminals all messages arrive, unchanged and in order") {
  std::uint64_t damaged = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Pair pair(seed, {.flipped_bit = 0.0005, .lost = 0.0005, .garbage = 0.0005, .burst = 0.0002});
    Completions done;
    for (std::uint64_t i = 0; i < 60; ++i) {
      send(pair.zero, {1}, i, done);
      send(pair.one, {0}, i, done);
    }
    REQUIRE(pair.run([&] {
      return pair.at_zero.arrivals().size() == 60 && pair.at_one.arrivals().size() == 60 &&
             done.is_each_called_once();
    }));
    CHECK(are_right(pair.at_zero.arrivals()));
    CHECK(are_right(pair.at_one.arrivals()));
    for (auto const& result : done.results()) CHECK(!result);
    damaged += pair.zero.statistics({1}).packets_damaged;
    damaged += pair.one.statistics({0}).packets_damaged;
  }
  CHECK(damaged > 100);  // it was noisy
}

TEST_CASE("on a line that became useless every message has arrived or its loss is reported") {
  for (unsigned seed = 0; seed < 5; ++seed) {
    CAPTURE(seed);
    Pair pair(seed, {}, 300ms);
    Completions first, done;
    send(pair.zero, {1}, 0, first);
    REQUIRE(pair.run([&] { return first.is_each_called_once(); }));
    pair.terminals.make({.flipped_bit = 0.05, .burst = 0.1});
    for (std::uint64_t i = 1; i < 60; ++i) send(pair.zero, {1}, i, done);
    REQUIRE(pair.run([&] { return done.is_each_called_once(); }));
    CHECK(are_right(pair.at_one.arrivals()));
    std::size_t arrived = 0;  // of the first, too, unless the line was slow
    for (auto* some : {&first, &done}) {
      for (auto const& result : some->results()) arrived += !result;
    }
    CHECK(arrived <= pair.at_one.arrivals().size());
    CHECK(arrived < 60);
    REQUIRE(pair.at_zero.losses().size() == 1);
    CHECK(pair.at_zero.losses()[0].why == errc::peer_lost);
  }
}

TEST_CASE("a worker without a line is unreachable") {
  noise::Terminals terminals(0, {});
  SerialTransport leaf({.lines = {{.peer = {0}, .descriptor = terminals.take_end(0)}}});
  RecordingSink sink;
  leaf.start(setup_of(1, sink, 3));
  Completions done;
  leaf.async_send({2}, numbered_message(1), done.next());
  leaf.run_until(time_point::min());
  CHECK(done.results()[0] == errc::unreachable);
  REQUIRE(sink.losses().size() == 1);
  CHECK(sink.losses()[0].peer == WorkerId{2});
  CHECK(sink.losses()[0].why == errc::unreachable);
}

TEST_CASE("a device is opened by its name, and made raw") {
  noise::Terminals terminals(0, {});
  SerialTransport zero({.lines = {{.peer = {1}, .device = terminals.name(0), .baud_rate = 9600}}});
  SerialTransport one({.lines = {{.peer = {0}, .device = terminals.name(1), .baud_rate = 9600}}});
  RecordingSink at_zero, at_one;
  zero.start(setup_of(0, at_zero));
  one.start(setup_of(1, at_one));
  Completions done;
  // All bytes that a terminal in its usual mode would change, echo or act upon.
  std::string all;
  for (int c = 0; c < 256; ++c) all += char(c);
  zero.async_send({1}, numbered_message(0, all), done.next());
  CHECK(eventually([&] {
    zero.run_until(time_point::min());
    one.run_until(time_point::min());
    return at_one.arrivals().size() == 1;
  }));
  CHECK(at_one.arrivals().at(0).message.metadata == numbered_message(0, all).metadata);
}

TEST_CASE("what cannot be a line is an error that names it") {
  auto const text = [](SerialTransport::Options options) {
    try {
      SerialTransport transport(std::move(options));
    } catch (Error const& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(text({.lines = {{.peer = {1}, .device = "/dev/no-such-tty"}}}).find("/dev/no-such-tty") !=
        std::string::npos);
  CHECK(text({.lines = {{.peer = {1}, .descriptor = -1}}}).find("rank 1") != std::string::npos);
  CHECK(text({.piece_bytes = 5000}).find("4096") != std::string::npos);
  CHECK(text({.window_pieces = 0}).find("1024") != std::string::npos);
}

}  // namespace serial_transport_tests
