#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <distgrad/testing/transport_rig.hpp>

namespace distgrad::testing {

/// Bytes arrive whole, in memory of the receiver. A part of `transport_conformance`.
template <class Rig>
void transport_delivers_bytes() {
  Completions completions;

  SUBCASE("a message arrives whole, and its completion tells success") {
    TransportGroup<Rig> group(2);
    group.start_and_run();
    auto const payload = patterned_buffer(1000, 1);
    group[0].async_send({1}, numbered_message(42, "metadata", {payload}), completions.next());
    REQUIRE(group.sink(1).wait_for_arrivals(1));
    auto const got = group.sink(1).arrivals()[0];
    CHECK(got.from == WorkerId{0});
    CHECK(got.message.kind == FrameKind::call);
    CHECK(got.message.flags == 7);
    CHECK(got.message.call == CallId{42});
    CHECK(got.message.metadata == numbered_message(0, "metadata").metadata);
    REQUIRE(got.message.buffers.size() == 1);
    CHECK(is_same_bytes(got.message.buffers[0], payload));
    REQUIRE(completions.wait());
    CHECK(!completions.results()[0]);
  }

  SUBCASE("the receiver never gets the sender's memory") {
    TransportGroup<Rig> group(2);
    group.start_and_run();
    auto const payload = patterned_buffer(64, 1);
    for (std::uint32_t to : {0u, 1u}) {
      group[0].async_send({to}, numbered_message(1, {}, {payload}), completions.next());
    }
    for (std::size_t i : {0, 1}) {
      REQUIRE(group.sink(i).wait_for_arrivals(1));
      CHECK(group.sink(i).arrivals()[0].message.buffers.at(0).data() != payload.data());
    }
  }

  SUBCASE("a payload of 32 MiB and more buffers than fit into one system call") {
    TransportGroup<Rig> group(2);
    group.start_and_run();
    std::vector<Buffer> sent{patterned_buffer(std::size_t{32} << 20, 3)};
    for (unsigned i = 0; i < 3000; ++i) sent.push_back(patterned_buffer(i % 50, i));
    group[0].async_send({1}, numbered_message(1, std::string(300000, 'm'), sent),
                        completions.next());
    REQUIRE(group.sink(1).wait_for_arrivals(1));
    auto const got = group.sink(1).arrivals()[0].message;
    CHECK(got.metadata == numbered_message(0, std::string(300000, 'm')).metadata);
    REQUIRE(got.buffers.size() == sent.size());
    bool same = true;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      same = same && is_same_bytes(got.buffers[i], sent[i]);
    }
    CHECK(same);
  }

  SUBCASE("no metadata, no buffers, and buffers without bytes") {
    TransportGroup<Rig> group(2);
    group.start_and_run();
    group[0].async_send({1}, numbered_message(0), completions.next());
    group[0].async_send({1}, numbered_message(1, {}, {Buffer(), Buffer()}), completions.next());
    group[0].async_send({1}, numbered_message(2, {}, {Buffer(), patterned_buffer(5, 0), Buffer()}),
                        completions.next());
    REQUIRE(group.sink(1).wait_for_arrivals(3));
    auto const arrivals = group.sink(1).arrivals();
    CHECK(is_in_order(arrivals, {0}, 0));
    CHECK(arrivals[0].message.buffers.empty());
    CHECK(arrivals[1].message.buffers.size() == 2);
    CHECK(arrivals[2].message.buffers.at(1).size_bytes() == 5);
    CHECK(completions.wait());
  }

  SUBCASE("a message that was refused at landing is dropped, the next one arrives") {
    TransportGroup<Rig> group(2);
    group.sink(1).refused_call = 1;
    group.start_and_run();
    group[0].async_send({1}, numbered_message(1, "no", {patterned_buffer(500000, 1)}),
                        completions.next());
    group[0].async_send({1}, numbered_message(2, "yes", {patterned_buffer(10, 2)}),
                        completions.next());
    REQUIRE(group.sink(1).wait_for_arrivals(1));
    auto const got = group.sink(1).arrivals()[0].message;
    CHECK(got.call == CallId{2});
    CHECK(is_same_bytes(got.buffers.at(0), patterned_buffer(10, 2)));
    CHECK(completions.wait());
  }
}

/// Messages arrive in the order they were sent, from everybody to everybody. A part of
/// `transport_conformance`.
template <class Rig>
void transport_keeps_order() {
  Completions completions;

  SUBCASE("many small messages arrive in the order they were sent") {
    TransportGroup<Rig> group(2);
    group.start_and_run();
    constexpr std::size_t count = 20000;
    for (std::size_t i = 0; i < count; ++i) {
      group[0].async_send({1}, numbered_message(i, "small"), completions.next());
    }
    REQUIRE(group.sink(1).wait_for_arrivals(count));
    CHECK(is_in_order(group.sink(1).arrivals(), {0}, 0));
    CHECK(completions.wait());
    CHECK(completions.is_each_called_once());
  }

  SUBCASE("small and large messages keep their order, and every byte is right") {
    TransportGroup<Rig> group(2);
    group.start_and_run();
    constexpr std::size_t count = 200;
    std::vector<Buffer> sent;
    for (std::size_t i = 0; i < count; ++i) {
      auto const size = i % 20 == 0 ? 300000 + i : i % 7 * 100;
      sent.push_back(patterned_buffer(size, static_cast<unsigned>(i)));
      group[0].async_send({1}, numbered_message(i, "m", {sent.back(), sent.front()}),
                          completions.next());
    }
    REQUIRE(group.sink(1).wait_for_arrivals(count));
    auto const arrivals = group.sink(1).arrivals();
    CHECK(is_in_order(arrivals, {0}, 0));
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(arrivals[i].message.buffers.size() == 2);
      CHECK(is_same_bytes(arrivals[i].message.buffers[0], sent[i]));
      CHECK(is_same_bytes(arrivals[i].message.buffers[1], sent[0]));
    }
  }

  SUBCASE("every pair of four workers talks both ways at once") {
    TransportGroup<Rig> group(4);
    group.start_and_run();
    constexpr std::size_t count = 100;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::uint32_t from = 0; from < 4; ++from) {
        for (std::uint32_t to = 0; to < 4; ++to) {
          group[from].async_send({to}, numbered_message(i, "x", {patterned_buffer(20000, from)}),
                                 completions.next());
        }
      }
    }
    for (std::size_t to = 0; to < 4; ++to) {
      REQUIRE(group.sink(to).wait_for_arrivals(4 * count));
      auto const arrivals = group.sink(to).arrivals();
      for (std::uint32_t from = 0; from < 4; ++from) CHECK(is_in_order(arrivals, {from}, 0));
    }
    CHECK(completions.wait());
    CHECK(completions.is_each_called_once());
  }

  SUBCASE("two workers that flood each other with large payloads do not block each other") {
    TransportGroup<Rig> group(2);
    group.start_and_run();
    auto const payload = patterned_buffer(std::size_t{4} << 20, 9);
    for (std::uint64_t i = 0; i < 16; ++i) {
      group[0].async_send({1}, numbered_message(i, "x", {payload}), completions.next());
      group[1].async_send({0}, numbered_message(i, "x", {payload}), completions.next());
    }
    CHECK(group.sink(0).wait_for_arrivals(16));
    CHECK(group.sink(1).wait_for_arrivals(16));
    CHECK(completions.wait());
  }

  SUBCASE("many threads send to the same peer, each in its own order") {
    TransportGroup<Rig> group(2);
    group.start_and_run();
    constexpr std::size_t threads = 4, count = 500;
    std::vector<std::thread> senders;
    for (std::size_t t = 0; t < threads; ++t) {
      senders.emplace_back([&, t] {
        for (std::size_t i = 0; i < count; ++i) {
          auto const payload = patterned_buffer(i % 50 == 0 ? 200000 : 30, 1);
          group[0].async_send({1}, numbered_message(t * count + i, "t", {payload}),
                              completions.next());
        }
      });
    }
    for (auto& sender : senders) sender.join();
    REQUIRE(group.sink(1).wait_for_arrivals(threads * count));
    std::vector<std::uint64_t> next(threads);
    bool ordered = true;
    for (auto const& arrival : group.sink(1).arrivals()) {
      auto const number = arrival.message.call.value;
      ordered = ordered && number % count == next.at(number / count)++;
    }
    CHECK(ordered);
    CHECK(completions.wait());
    CHECK(completions.is_each_called_once());
  }
}

/// Sends to oneself, sends from handlers, and sends that cannot be carried out. A part of
/// `transport_conformance`.
template <class Rig>
void transport_serves_its_worker() {
  Completions completions;

  SUBCASE("a worker's message to itself is delivered by its own run_until") {
    TransportGroup<Rig> group(1);
    group.start();
    auto const payload = patterned_buffer(100, 1);
    group[0].async_send({0}, numbered_message(5, "self", {payload}), completions.next());
    CHECK(group.sink(0).arrivals().empty());
    REQUIRE(eventually([&] {
      group[0].run_until(time_point::min());
      return group.sink(0).arrivals().size() == 1;
    }));
    auto const got = group.sink(0).arrivals()[0];
    CHECK(got.from == WorkerId{0});
    CHECK(is_same_bytes(got.message.buffers.at(0), payload));
    REQUIRE(eventually([&] {
      group[0].run_until(time_point::min());
      return completions.is_each_called_once();
    }));
  }

  SUBCASE("a handler may send: an answer reaches the caller") {
    TransportGroup<Rig> group(2);
    group.sink(1).hook = [&](WorkerId from, Message const& message) {
      group[1].async_send(from, numbered_message(message.call.value + 1), nullptr);
    };
    group.start_and_run();
    for (std::uint64_t i = 0; i < 200; ++i) {
      group[0].async_send({1}, numbered_message(10 * i), completions.next());
      REQUIRE(group.sink(0).wait_for_arrivals(i + 1));
    }
    CHECK(group.sink(0).arrivals().back().message.call == CallId{1991});
    group.stop(1);
  }

  SUBCASE("an unknown worker, an own kind and an oversized message harm no connection") {
    TransportGroup<Rig> group(2);
    FrameLimits limits;
    limits.max_metadata_bytes = 100;
    limits.max_payload_bytes = 100;
    limits.max_buffers = 3;
    group.start(limits);
    group.run_all();
    auto hello = numbered_message(1);
    hello.kind = FrameKind::hello;
    group[0].async_send({2}, numbered_message(1), completions.next());
    group[0].async_send({1}, std::move(hello), completions.next());
    group[0].async_send({1}, numbered_message(1, std::string(101, 'x')), completions.next());
    group[0].async_send({1}, numbered_message(1, {}, {patterned_buffer(101, 1)}),
                        completions.next());
    group[0].async_send({1}, numbered_message(1, {}, std::vector<Buffer>(4)), completions.next());
    group[0].async_send({1}, numbered_message(9), completions.next());
    REQUIRE(completions.wait());
    auto const results = completions.results();
    CHECK(results[0] == errc::unknown_worker);
    CHECK(results[1] == errc::invalid_argument);
    for (int i : {2, 3, 4}) CHECK(results[i] == errc::frame_too_large);
    REQUIRE(group.sink(1).wait_for_arrivals(1));
    CHECK(group.sink(1).arrivals()[0].message.call == CallId{9});
  }
}

}  // namespace distgrad::testing
