#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <distgrad/core/deadline.hpp>
#include <distgrad/core/ids.hpp>

namespace distgrad {

/// Remembers until when each call may take; a state machine without a clock.
///
/// | state of a call | add | cancel | expire(now) |
/// |---|---|---|---|
/// | absent | waiting | - | - |
/// | waiting | - | absent | absent and returned, if its deadline is not after `now` |
///
/// Deadlines are kept in slots of 1 ms, so a call may expire up to 1 ms late, never early.
/// @threads one thread at a time. @cost add and cancel O(log of the slots in use).
class DeadlineWheel {
 public:
  /// A call's place in the wheel; needed to cancel.
  struct Ticket {
    std::int64_t slot = no_slot;
  };

  Ticket add(CallId call, Deadline deadline) {
    if (deadline.is_never()) return {};
    auto const slot = slot_after(deadline.at);
    slots_[slot].push_back(call);
    ++size_;
    return {slot};
  }

  void cancel(CallId call, Ticket ticket) {
    auto const at = slots_.find(ticket.slot);
    if (at == slots_.end()) return;
    if (std::erase(at->second, call) != 0) --size_;
    if (at->second.empty()) slots_.erase(at);
  }

  /// Removes and returns the calls whose deadline has come.
  std::vector<CallId> expire(time_point now) {
    std::vector<CallId> expired;
    while (!slots_.empty() && time_of(slots_.begin()->first) <= now) {
      auto& calls = slots_.begin()->second;
      expired.insert(expired.end(), calls.begin(), calls.end());
      slots_.erase(slots_.begin());
    }
    size_ -= expired.size();
    return expired;
  }

  /// When `expire` will next have something to do.
  std::optional<time_point> next() const {
    if (slots_.empty()) return std::nullopt;
    return time_of(slots_.begin()->first);
  }

  std::size_t size() const { return size_; }

 private:
  static constexpr std::int64_t no_slot = -1;
  static std::int64_t slot_after(time_point t) {
    return std::chrono::ceil<milliseconds>(t.time_since_epoch()).count();
  }
  static time_point time_of(std::int64_t slot) { return time_point(milliseconds(slot)); }

  std::map<std::int64_t, std::vector<CallId>> slots_;
  std::size_t size_ = 0;
};

}  // namespace distgrad
