#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <distgrad/transport/concept.hpp>

/// The behaviour every transport has to have. A plugin's test file says
///
///     struct YourRig {
///       using Transport = YourTransport;
///       // Transports that can reach one another.
///       static std::vector<std::unique_ptr<Transport>> make(std::size_t count);
///       // Ends one as if its process was killed.
///       static void abandon(Transport&);
///     };
///     TEST_CASE_TEMPLATE_INVOKE(transport_conformance, YourRig);
namespace distgrad::testing {

inline constexpr std::chrono::seconds patience{30};

/// Memory of its own with a pattern that depends on `seed`.
inline Buffer patterned_buffer(std::size_t size_bytes, unsigned seed) {
  auto bytes = std::make_shared<std::vector<std::byte>>(size_bytes);
  for (std::size_t i = 0; i < size_bytes; ++i) {
    (*bytes)[i] = static_cast<std::byte>((i * 31 + i / 251 + seed) & 0xff);
  }
  return Buffer(bytes, bytes->data(), bytes->size());
}

inline bool is_same_bytes(Buffer const& a, Buffer const& b) {
  return a.size_bytes() == b.size_bytes() &&
         (a.size_bytes() == 0 || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// A message whose call id is `number`.
inline Message numbered_message(std::uint64_t number, std::string_view text = {},
                                std::vector<Buffer> buffers = {}) {
  Message message;
  message.kind = FrameKind::call;
  message.flags = 7;
  message.call.value = number;
  auto const* bytes = reinterpret_cast<std::byte const*>(text.data());
  message.metadata.assign(bytes, bytes + text.size());
  message.buffers = std::move(buffers);
  return message;
}

/// Keeps what arrives, and lets the test wait for it.
class RecordingSink : public MessageSink {
 public:
  struct Arrival {
    WorkerId from;
    Message message;
  };
  struct Loss {
    WorkerId peer;
    error_code why;
  };

  std::vector<Buffer> landing(FrameHeader const& header, std::span<std::byte const>,
                              std::span<std::uint64_t const> lengths) noexcept override {
    if (header.call.value == refused_call) return {};
    std::vector<Buffer> buffers;
    for (auto length : lengths) {
      // Larger than asked for: the contract allows it.
      auto bytes = std::make_shared<std::vector<std::byte>>(length + 8);
      buffers.emplace_back(bytes, bytes->data(), bytes->size());
    }
    return buffers;
  }
  void on_message(WorkerId from, Message message) noexcept override {
    if (hook) hook(from, message);
    std::lock_guard lock(mutex_);
    arrivals_.push_back({from, std::move(message)});
    changed_.notify_all();
  }
  void on_peer_lost(WorkerId peer, error_code why) noexcept override {
    std::lock_guard lock(mutex_);
    losses_.push_back({peer, why});
    changed_.notify_all();
  }

  bool wait_for_arrivals(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return arrivals_.size() >= count; });
  }
  bool wait_for_losses(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return losses_.size() >= count; });
  }
  std::vector<Arrival> arrivals() {
    std::lock_guard lock(mutex_);
    return arrivals_;
  }
  std::vector<Loss> losses() {
    std::lock_guard lock(mutex_);
    return losses_;
  }

  /// Messages with this call id are refused at landing. Set before the start.
  std::uint64_t refused_call = ~std::uint64_t{0};
  /// Runs on the transport's thread before a message is recorded. Set before the start.
  std::function<void(WorkerId, Message const&)> hook;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Arrival> arrivals_;
  std::vector<Loss> losses_;
};

/// Counts completions of many sends.
class Completions {
 public:
  SendCompletion next() {
    auto const index = [this] {
      std::lock_guard lock(state_->mutex);
      state_->calls.push_back(0);
      state_->results.emplace_back();
      return state_->calls.size() - 1;
    }();
    return [state = state_, index](error_code result) {
      std::lock_guard lock(state->mutex);
      ++state->calls[index];
      state->results[index] = result;
      ++state->total;
      state->changed.notify_all();
    };
  }
  /// Waits until every completion was called.
  bool wait() {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, patience,
                                    [&] { return state_->total >= state_->calls.size(); });
  }
  bool is_each_called_once() {
    std::lock_guard lock(state_->mutex);
    return std::all_of(state_->calls.begin(), state_->calls.end(), [](int n) { return n == 1; });
  }
  std::vector<error_code> results() {
    std::lock_guard lock(state_->mutex);
    return state_->results;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<int> calls;
    std::vector<error_code> results;
    std::size_t total = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// Connected transports, each with a sink and, once `run` was called, a thread.
template <class Rig>
class TransportGroup {
 public:
  using Transport = typename Rig::Transport;

  explicit TransportGroup(std::size_t count)
      : transports_(Rig::make(count)), sinks_(count), threads_(count), stop_(count) {
    for (auto& sink : sinks_) sink = std::make_unique<RecordingSink>();
    for (auto& stop : stop_) stop = std::make_unique<std::atomic<bool>>(false);
  }
  ~TransportGroup() {
    for (std::size_t i = 0; i < transports_.size(); ++i) stop(i);
  }

  Transport& operator[](std::size_t i) { return *transports_[i]; }
  RecordingSink& sink(std::size_t i) { return *sinks_[i]; }

  void start(FrameLimits const& limits = {}) {
    std::vector<PeerAddress> group;
    for (std::uint32_t i = 0; i < transports_.size(); ++i) {
      WorkerInfo const info{"worker" + std::to_string(i), WorkerId{i}, Incarnation{100 + i}};
      group.push_back({info, transports_[i]->local_endpoint()});
    }
    for (std::uint32_t i = 0; i < transports_.size(); ++i) {
      TransportSetup setup;
      setup.self = WorkerId{i};
      setup.group = group;
      setup.sink = sinks_[i].get();
      setup.limits = limits;
      setup.job_secret = "a secret";
      transports_[i]->start(std::move(setup));
    }
  }
  void run(std::size_t i) {
    threads_[i] = std::thread([transport = transports_[i].get(), stop = stop_[i].get()] {
      while (!*stop) transport->run_until(Clock::now() + std::chrono::seconds(1));
    });
  }
  void run_all() {
    for (std::size_t i = 0; i < transports_.size(); ++i) run(i);
  }
  void start_and_run() {
    start();
    run_all();
  }
  /// Ends the thread of transport `i`; the transport stays as it is.
  void stop(std::size_t i) {
    *stop_[i] = true;
    if (!threads_[i].joinable()) return;
    transports_[i]->wake();
    threads_[i].join();
  }

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<RecordingSink>> sinks_;
  std::vector<std::thread> threads_;
  std::vector<std::unique_ptr<std::atomic<bool>>> stop_;
};

/// Whether the calls from `from` bear the numbers first, first + 1, ...
inline bool is_in_order(std::vector<RecordingSink::Arrival> const& arrivals, WorkerId from,
                        std::uint64_t first) {
  for (auto const& arrival : arrivals) {
    if (arrival.from == from && arrival.message.call.value != first++) return false;
  }
  return true;
}

/// Calls `step` until it says true. @return whether it did in time.
template <class Step>
bool eventually(Step step) {
  auto const deadline = Deadline::after(patience);
  while (!deadline.has_passed()) {
    if (step()) return true;
    std::this_thread::yield();
  }
  return false;
}

/// Sleeps as a loop outside of the library does, with poll(2) on the handles of all `transports`.
/// @return false if nothing was ready in time.
template <class... Transport>
bool sleep_on_handles(Transport&... transports) {
  std::vector<pollfd> handles;
  std::chrono::nanoseconds longest = patience;
  for (auto* transport : {&transports...}) {
    for (auto const& handle : transport->native_handles()) handles.push_back(handle);
    longest = std::min(longest, transport->longest_sleep());
  }
  auto const timeout = std::chrono::ceil<milliseconds>(longest);
  return ::poll(handles.data(), handles.size(), static_cast<int>(timeout.count())) > 0 ||
         longest < patience;
}

TEST_CASE_TEMPLATE_DEFINE("a transport keeps its contract", Rig, transport_conformance) {
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
    for (std::size_t i : {1, 2}) {
      REQUIRE(group.sink(i).wait_for_losses(1));
      CHECK(group.sink(i).losses()[0].peer == WorkerId{0});
      CHECK(group.sink(i).losses()[0].why == errc::closed);
      CHECK(group.sink(i).losses().size() == 1);
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
      REQUIRE(group.sink(i).wait_for_losses(1));
      CHECK(group.sink(i).losses()[0].peer == WorkerId{0});
      CHECK(group.sink(i).losses()[0].why == condition::peer_lost);
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

}  // namespace distgrad::testing
