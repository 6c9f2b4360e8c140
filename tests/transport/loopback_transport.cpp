#include <distgrad/transport/loopback_transport.hpp>

#include <doctest/doctest.h>

#include <distgrad/testing/transport_conformance.hpp>

namespace loopback_transport_tests {

namespace {

using namespace distgrad;
using namespace distgrad::testing;

/// Two transports that are polled by the test.
struct Pair {
  Pair() {
    std::vector<PeerAddress> const group{{{"a", {0}, {1}}, a.local_endpoint()},
                                         {{"b", {1}, {1}}, b.local_endpoint()}};
    TransportSetup setup;
    setup.group = group;
    setup.sink = &sink_a;
    a.start(setup);
    setup.self = {1};
    setup.sink = &sink_b;
    b.start(setup);
  }

  std::shared_ptr<LoopbackHub> hub = std::make_shared<LoopbackHub>();
  LoopbackTransport a{{hub}}, b{{hub}};
  RecordingSink sink_a, sink_b;
};

/// A completion that records what it was called with.
struct Result {
  SendCompletion completion() {
    return [this](error_code ec) {
      ++calls;
      code = ec;
    };
  }
  int calls = 0;
  error_code code;
};

}  // namespace

TEST_CASE("without threads, each poll handles what was there, in order") {
  Pair pair;
  for (std::uint64_t i = 0; i < 3; ++i) pair.a.async_send({1}, numbered_message(i), nullptr);
  CHECK(pair.sink_b.arrivals().empty());
  CHECK(pair.b.run_until(time_point::min()) == 3);
  CHECK(is_in_order(pair.sink_b.arrivals(), {0}, 0));
  CHECK(pair.b.run_until(time_point::min()) == 0);
}

TEST_CASE("a big payload is complete once the receiver has copied it, on the sender's thread") {
  Pair pair;
  Result result;
  pair.a.async_send({1}, numbered_message(1, {}, {patterned_buffer(5000, 1)}), result.completion());
  pair.a.run_until(time_point::min());
  CHECK(result.calls == 0);
  pair.b.run_until(time_point::min());
  CHECK(result.calls == 0);
  pair.a.run_until(time_point::min());
  CHECK(result.calls == 1);
  CHECK(!result.code);
}

TEST_CASE("a message without payload is complete at once") {
  Pair pair;
  Result result;
  pair.a.async_send({1}, numbered_message(1), result.completion());
  CHECK(result.calls == 1);
}

TEST_CASE("a small payload is copied at once") {
  Pair pair;
  Result result;
  auto const payload = patterned_buffer(4096, 1);
  pair.a.async_send({1}, numbered_message(1, {}, {payload}), result.completion());
  CHECK(result.calls == 1);
  std::fill(payload.bytes().begin(), payload.bytes().end(), std::byte{0});
  pair.b.run_until(time_point::min());
  REQUIRE(pair.sink_b.arrivals().size() == 1);
  CHECK(is_same_bytes(pair.sink_b.arrivals()[0].message.buffers.at(0), patterned_buffer(4096, 1)));
}

TEST_CASE("after a close the sender's memory may change before the peer has read") {
  Pair pair;
  Result result;
  auto const payload = patterned_buffer(10000, 1);
  pair.a.async_send({1}, numbered_message(1, {}, {payload}), result.completion());
  pair.a.close();
  CHECK(result.calls == 1);
  CHECK(!result.code);
  std::fill(payload.bytes().begin(), payload.bytes().end(), std::byte{0});
  pair.b.run_until(time_point::min());
  REQUIRE(pair.sink_b.arrivals().size() == 1);
  CHECK(is_same_bytes(pair.sink_b.arrivals()[0].message.buffers.at(0), patterned_buffer(10000, 1)));
}

TEST_CASE("a peer that ends with unread messages tells their sender") {
  for (bool vanishes : {false, true}) {
    Pair pair;
    Result result;
    pair.a.async_send({1}, numbered_message(1, {}, {patterned_buffer(5000, 1)}),
                      result.completion());
    vanishes ? pair.b.abandon() : pair.b.close();
    pair.a.run_until(time_point::min());
    CHECK(result.calls == 1);
    CHECK(result.code == (vanishes ? errc::peer_lost : errc::closed));
    REQUIRE(pair.sink_a.losses().size() == 1);
    CHECK(pair.sink_a.losses()[0].why == (vanishes ? errc::peer_lost : errc::closed));
  }
}

TEST_CASE("an endpoint of another hub, or of another transport, is unreachable") {
  LoopbackTransport a;
  LoopbackTransport elsewhere;
  RecordingSink sink;
  TransportSetup setup;
  setup.sink = &sink;
  setup.group = {{{"a", {0}, {1}}, a.local_endpoint()},
                 {{"b", {1}, {1}}, "loopback:99"},
                 {{"c", {2}, {1}}, "127.0.0.1:80"}};
  a.start(setup);
  for (std::uint32_t to : {1u, 2u}) {
    Result result;
    a.async_send({to}, numbered_message(1), result.completion());
    CHECK(result.code == errc::unreachable);
  }
}

TEST_CASE("a hub forgets transports that ended") {
  auto const hub = std::make_shared<LoopbackHub>();
  std::string endpoint;
  {
    LoopbackTransport gone({hub});
    endpoint = gone.local_endpoint();
    CHECK(hub->find(endpoint));
  }
  CHECK(!hub->find(endpoint));
  CHECK(LoopbackTransport({hub}).local_endpoint() != endpoint);
}

}  // namespace loopback_transport_tests
