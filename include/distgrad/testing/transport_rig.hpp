#pragma once
#include <poll.h>

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

// What the tests of transports share: messages, a sink that records, and a group of transports.
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

}  // namespace distgrad::testing
