#pragma once
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <distgrad/testing/transport_rig.hpp>

namespace distgrad::testing {

/// How a transport begins, and how it waits. A part of `transport_conformance`.
template <class Rig>
void transport_starts_and_waits() {
  Completions completions;

  SUBCASE("messages sent before the peer starts wait for it") {
    TransportGroup<Rig> group(2);
    group.start();
    group.run(0);
    for (std::uint64_t i = 0; i < 10; ++i) {
      group[0].async_send({1}, numbered_message(i, "early"), completions.next());
    }
    group.run(1);
    REQUIRE(group.sink(1).wait_for_arrivals(10));
    CHECK(is_in_order(group.sink(1).arrivals(), {0}, 0));
  }

  SUBCASE("a wake ends the running and, if none runs, the next run_until") {
    TransportGroup<Rig> group(1);
    group.start();
    group[0].wake();
    auto const before = Clock::now();
    group[0].run_until(before + patience);
    std::thread waker([&] { group[0].wake(); });
    group[0].run_until(before + patience);
    waker.join();
    CHECK(Clock::now() < before + patience);
  }

  SUBCASE("run_until returns at its time when nothing happens") {
    TransportGroup<Rig> group(1);
    group.start();
    CHECK(group[0].run_until(time_point::min()) == 0);
    auto const until = Clock::now() + milliseconds(5);
    while (Clock::now() < until) group[0].run_until(until);
    CHECK(group.sink(0).arrivals().empty());
  }

  SUBCASE("run_until with a limit delivers no more, and leaves the others for later") {
    if constexpr (BoundedTransport<typename Rig::Transport>) {
      constexpr std::size_t messages = 100, limit = 3;
      TransportGroup<Rig> group(2);
      group.start();
      group.run(0);
      for (std::uint64_t i = 0; i < messages; ++i) {
        group[0].async_send({1}, numbered_message(i, "other"), nullptr);
        group[1].async_send({1}, numbered_message(i, "itself"), nullptr);
      }
      std::size_t before = 0, most = 0;
      REQUIRE(eventually([&] {
        group[1].run_until(Clock::now() + milliseconds(before % 2), limit);
        auto const after = group.sink(1).arrivals().size();
        most = std::max(most, after - std::exchange(before, after));
        return after == 2 * messages;
      }));
      CHECK(most <= limit);
      CHECK(is_in_order(group.sink(1).arrivals(), {0}, 0));
      CHECK(is_in_order(group.sink(1).arrivals(), {1}, 0));
    }
  }

  SUBCASE("who sleeps on the native handles misses nothing, and is not woken for nothing") {
    if constexpr (WaitableTransport<typename Rig::Transport>) {
      TransportGroup<Rig> group(2);
      group.start();
      auto const turn = [&](std::size_t count) {
        while (group[0].run_until(time_point::min()) + group[1].run_until(time_point::min())) {
        }
        bool const done = group.sink(0).arrivals().size() == 2 * count &&
                          group.sink(1).arrivals().size() == 2 * count;
        if (!done) REQUIRE(sleep_on_handles(group[0], group[1]));
        return done;
      };
      for (std::size_t i = 0; i < 20; ++i) {
        for (std::uint32_t from : {0, 1}) {
          auto const payload = patterned_buffer(i % 5 == 0 ? std::size_t{8} << 20 : 8, 1);
          group[from].async_send({0}, numbered_message(i, "", {payload}), completions.next());
          group[from].async_send({1}, numbered_message(i, "", {payload}), completions.next());
        }
        REQUIRE(eventually([&] { return turn(i + 1); }));
      }
      for (std::size_t i : {0, 1}) {
        group[i].native_handles();  // the first ones may be ready: what came before is not known
        group[i].run_until(time_point::min());
        auto handles = group[i].native_handles();
        CHECK(::poll(handles.data(), handles.size(), 0) == 0);
        group[i].wake();
        CHECK(::poll(handles.data(), handles.size(), 0) == 1);
      }
    }
  }

  SUBCASE("what a run_until with a limit left undone shows on the native handles") {
    using Transport = typename Rig::Transport;
    if constexpr (WaitableTransport<Transport> && BoundedTransport<Transport>) {
      constexpr std::uint64_t messages = 20;
      TransportGroup<Rig> group(2);
      group.start();
      for (std::uint64_t i = 0; i < messages; ++i) {
        auto const payload = patterned_buffer(i % 10 == 0 ? std::size_t{1} << 20 : 8, 1);
        for (std::uint32_t from : {0, 1}) {
          group[from].async_send({0}, numbered_message(i, "", {payload}), completions.next());
          group[from].async_send({1}, numbered_message(i, "", {payload}), completions.next());
        }
      }
      REQUIRE(eventually([&] {
        for (std::size_t i : {0, 1}) group[i].run_until(time_point::min(), 1);
        bool const done = group.sink(0).arrivals().size() == 2 * messages &&
                          group.sink(1).arrivals().size() == 2 * messages;
        if (!done) REQUIRE(sleep_on_handles(group[0], group[1]));
        return done;
      }));
    }
  }

  SUBCASE("a transport that never started, and one that is closed at once, end quietly") {
    auto transports = Rig::make(2);
    CHECK(!transports[0]->local_endpoint().empty());
    transports[0]->async_send({0}, numbered_message(1), completions.next());
    REQUIRE(completions.wait());
    CHECK(completions.results()[0] == errc::closed);
    transports[1]->close();
    transports[1]->close();
  }

  SUBCASE("a start without sink, or outside the group, is an error") {
    auto transports = Rig::make(1);
    RecordingSink sink;
    TransportSetup setup;
    setup.sink = &sink;
    CHECK_THROWS_AS(transports[0]->start(setup), Error);
    setup.group = {{{"a", {0}, {1}}, transports[0]->local_endpoint()}};
    setup.sink = nullptr;
    CHECK_THROWS_AS(transports[0]->start(setup), Error);
  }
}

/// Checks that a worker loses that peer, for that reason, and no other one.
inline void check_only_loss(RecordingSink& sink, std::uint32_t peer, auto why) {
  REQUIRE(sink.wait_for_losses(1));
  auto const losses = sink.losses();
  CHECK(losses.size() == 1);
  CHECK(losses[0].peer == WorkerId{peer});
  CHECK(losses[0].why == why);
}

/// Who loses a peer learns it once, and why. A part of `transport_conformance`.
template <class Rig>
void transport_reports_losses() {
  Completions completions;

  SUBCASE("a worker that closes is reported so, after all it sent before") {
    TransportGroup<Rig> group(3);
    group.start_and_run();
    for (std::uint32_t from : {0u, 2u}) {
      group[from].async_send({1}, numbered_message(1), completions.next());
      group[1].async_send({from}, numbered_message(1), completions.next());
    }
    for (std::size_t i : {0, 2}) REQUIRE(group.sink(i).wait_for_arrivals(1));
    REQUIRE(group.sink(1).wait_for_arrivals(2));
    group[0].async_send({1}, numbered_message(2, "x", {patterned_buffer(1 << 20, 5)}),
                        completions.next());
    group[0].close();
    CHECK(group.sink(1).wait_for_arrivals(3));
    // Sends to it complete with `closed` once the goodbye was seen.
    CHECK(eventually([&] {
      Completions probe;
      group[1].async_send({0}, numbered_message(3), probe.next());
      return probe.wait() && probe.results()[0] == errc::closed;
    }));
    // The others go on.
    group[1].async_send({2}, numbered_message(4), completions.next());
    CHECK(group.sink(2).wait_for_arrivals(2));
    CHECK(completions.wait());
    for (std::size_t i : {1, 2}) check_only_loss(group.sink(i), 0, errc::closed);
  }

  SUBCASE("so is one that closes before its peers have connected to it, or it to them") {
    for (std::uint32_t closed : {0, 1, 2}) {
      CAPTURE(closed);
      TransportGroup<Rig> group(3);
      group.start_and_run();
      group[closed].close();
      for (std::size_t i : {0, 1, 2}) {
        if (i != closed) check_only_loss(group.sink(i), closed, errc::closed);
      }
    }
  }

  SUBCASE("a worker that vanishes is reported once to every peer; sends to it fail") {
    TransportGroup<Rig> group(3);
    group.start_and_run();
    for (std::uint32_t i : {1u, 2u}) {
      group[0].async_send({i}, numbered_message(1), completions.next());
      REQUIRE(group.sink(i).wait_for_arrivals(1));
    }
    Rig::abandon(group[0]);
    for (std::size_t i : {1, 2}) {
      check_only_loss(group.sink(i), 0, condition::peer_lost);
      Completions late;
      group[i].async_send({0}, numbered_message(2, "x", {patterned_buffer(10, 1)}), late.next());
      REQUIRE(late.wait());
      CHECK(late.results()[0] == condition::peer_lost);
    }
    group[1].async_send({2}, numbered_message(3), completions.next());
    REQUIRE(group.sink(2).wait_for_arrivals(2));
    for (std::size_t i : {1, 2}) CHECK(group.sink(i).losses().size() == 1);
  }

  SUBCASE("a vanished worker ends the sends that wait for it, each once") {
    TransportGroup<Rig> group(2);
    group.start_and_run();
    group[0].async_send({1}, numbered_message(1), completions.next());
    group[1].async_send({0}, numbered_message(1), completions.next());
    REQUIRE(group.sink(0).wait_for_arrivals(1));
    REQUIRE(group.sink(1).wait_for_arrivals(1));
    group.stop(1);  // reads no more: what follows piles up
    for (std::uint64_t i = 0; i < 20; ++i) {
      group[0].async_send({1}, numbered_message(i, "x", {patterned_buffer(1 << 20, 1)}),
                          completions.next());
    }
    Rig::abandon(group[1]);
    REQUIRE(completions.wait());
    CHECK(completions.is_each_called_once());
    CHECK(completions.results().back() == condition::peer_lost);
  }
}

/// What a close promises, whenever it comes. A part of `transport_conformance`.
template <class Rig>
void transport_closes() {
  Completions completions;

  SUBCASE("close while threads send: every completion is called once, nothing hangs") {
    TransportGroup<Rig> group(2);
    group.start_and_run();
    std::atomic<bool> stop{false};
    std::vector<std::thread> senders;
    for (int t = 0; t < 3; ++t) {
      senders.emplace_back([&] {
        for (std::uint64_t i = 0; !stop; ++i) {
          group[0].async_send({1}, numbered_message(i, "x", {patterned_buffer(5000, 1)}),
                              completions.next());
          if (i % 16 == 15) std::this_thread::yield();
        }
      });
    }
    REQUIRE(group.sink(1).wait_for_arrivals(10));
    group[0].close();
    stop = true;
    for (auto& sender : senders) sender.join();
    CHECK(completions.wait());
    CHECK(completions.is_each_called_once());
  }

  SUBCASE("after close nothing is called any more, and sends complete with closed") {
    TransportGroup<Rig> group(2);
    group.start_and_run();
    group[0].async_send({1}, numbered_message(1), completions.next());
    REQUIRE(group.sink(1).wait_for_arrivals(1));
    group[1].close();
    group.stop(1);
    auto const seen = group.sink(1).arrivals().size();
    for (std::uint64_t i = 0; i < 10; ++i) {
      group[0].async_send({1}, numbered_message(i), completions.next());
    }
    REQUIRE(completions.wait());
    group[1].run_until(time_point::min());
    CHECK(group.sink(1).arrivals().size() == seen);
    Completions late;
    group[1].async_send({0}, numbered_message(1, "x", {patterned_buffer(3, 1)}), late.next());
    group[1].async_send({1}, numbered_message(1), late.next());
    REQUIRE(late.wait());
    for (auto const& result : late.results()) CHECK(result == errc::closed);
    group[1].close();
  }

  SUBCASE("close has an end although one peer does not read and another one has vanished") {
    TransportGroup<Rig> group(3);
    group.start_and_run();
    group[0].async_send({1}, numbered_message(1), completions.next());
    for (std::uint32_t from : {0, 1}) {
      group[from].async_send({2}, numbered_message(1), completions.next());
    }
    REQUIRE(group.sink(1).wait_for_arrivals(1));
    REQUIRE(group.sink(2).wait_for_arrivals(2));  // all are connected
    for (std::size_t i : {1, 2}) group.stop(i);
    for (std::uint64_t i = 0; i < 40; ++i) {
      group[0].async_send({1 + std::uint32_t(i % 2)},
                          numbered_message(i, "x", {patterned_buffer(1 << 20, 1)}),
                          completions.next());
    }
    group.stop(0);  // the close learns by itself that one of them is gone
    Rig::abandon(group[1]);
    auto const before = Clock::now();
    group[0].close();
    CHECK(Clock::now() - before < patience / 2);
    REQUIRE(completions.wait());
    CHECK(completions.is_each_called_once());
  }

  SUBCASE("close inside a handler") {
    TransportGroup<Rig> group(2);
    group.sink(1).hook = [&](WorkerId, Message const&) { group[1].close(); };
    group.start_and_run();
    group[0].async_send({1}, numbered_message(1), completions.next());
    group[0].async_send({1}, numbered_message(2), completions.next());
    REQUIRE(group.sink(1).wait_for_arrivals(1));
    group.stop(1);
    CHECK(group.sink(1).arrivals().size() == 1);
    CHECK(completions.wait());
  }
}

}  // namespace distgrad::testing
