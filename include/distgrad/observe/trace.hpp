#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include <distgrad/core/deadline.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/observe/pass_record.hpp>

namespace distgrad {

/// One side of a call. Both sides know its id, so that they can be joined.
struct CallSpan {
  enum class Side : std::uint8_t { caller, callee };
  Side side = Side::caller;
  std::string_view function;  ///< Outlives the trace.
  WorkerId peer;
  CallId call = {};  ///< The caller's number of it.
  /// The answer is what the callee's part ends with, not only a receipt.
  bool awaits_result = true;
  /// At the callee, where it waits for a thread before it begins.
  time_point arrived;
  time_point began, ended = {};
  std::thread::id thread;  ///< On which it began.
  std::uint64_t sent_bytes = 0, received_bytes = 0;
  error_code error = {};
};

/// One worker's part in a backward pass.
struct PassSpan {
  PassRecord record;
  time_point began, ended;
  std::thread::id thread;
};

/// A gradient message leaves or arrives.
struct GradientMark {
  PassId pass;
  AutogradMessageId message;
  WorkerId peer;
  bool is_sent = false;
  std::uint64_t bytes = 0;  ///< Where it is sent.
  time_point at;
};

using TraceEvent = std::variant<CallSpan, PassSpan, GradientMark>;

/// What happened in one engine, in the order in which it ended. Holds the first `capacity` events
/// and counts those it has no room for, so that a job that runs for days can be traced like any.
/// @threads safe: shared object. @cost of an event: an atomic addition and a copy; no lock. Memory
/// is taken as it is needed.
class Trace {
 public:
  explicit Trace(std::size_t capacity)
      : capacity_(capacity), chunks_((capacity + chunk_events - 1) / chunk_events) {}
  Trace(Trace const&) = delete;
  Trace& operator=(Trace const&) = delete;
  ~Trace() {
    for (auto& chunk : chunks_) delete chunk.load();
  }

  void add(TraceEvent const& event) noexcept {
    auto const index = count_.fetch_add(1, std::memory_order_relaxed);
    auto* const chunk = index < capacity_ ? chunk_of(index) : nullptr;
    if (!chunk) return void(dropped_.fetch_add(1, std::memory_order_relaxed));
    auto& slot = chunk->slots[index % chunk_events];
    slot.event = event;
    slot.is_ready.store(true, std::memory_order_release);
  }

  std::size_t capacity() const { return capacity_; }
  /// Events that found no room.
  std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  /// Those that are complete by now.
  std::vector<TraceEvent> snapshot() const {
    std::vector<TraceEvent> events;
    for (auto const& place : chunks_) {
      auto const* chunk = place.load(std::memory_order_acquire);
      for (std::size_t i = 0; chunk && i < chunk_events; ++i) {
        auto const& slot = chunk->slots[i];
        if (slot.is_ready.load(std::memory_order_acquire)) events.push_back(slot.event);
      }
    }
    return events;
  }

 private:
  static constexpr std::size_t chunk_events = 1024;
  struct Slot {
    TraceEvent event;
    std::atomic<bool> is_ready{false};
  };
  struct Chunk {
    Slot slots[chunk_events];
  };

  /// @return null without memory.
  Chunk* chunk_of(std::size_t index) noexcept {
    auto& place = chunks_[index / chunk_events];
    auto* chunk = place.load(std::memory_order_acquire);
    if (chunk) return chunk;
    auto* const fresh = new (std::nothrow) Chunk;
    if (place.compare_exchange_strong(chunk, fresh)) return fresh;
    delete fresh;  // another thread was first
    return chunk;
  }

  std::size_t capacity_;
  std::vector<std::atomic<Chunk*>> chunks_;
  std::atomic<std::size_t> count_{0};
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace distgrad
