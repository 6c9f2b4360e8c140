#pragma once
#include <mutex>

#include <distgrad/core/deadline.hpp>

namespace distgrad::testing {

/// A time that stands still until the test moves it. @threads safe: shared object.
class ManualClock : public TimeSource {
 public:
  /// Starts well after the epoch, so that a test may look back.
  explicit ManualClock(time_point start = time_point(std::chrono::hours(1000))) : now_(start) {}

  time_point now() const override {
    std::lock_guard lock(mutex_);
    return now_;
  }
  void advance(std::chrono::nanoseconds by) {
    std::lock_guard lock(mutex_);
    now_ += std::chrono::duration_cast<Clock::duration>(by);
  }
  /// Moves to `to`; a clock does not go back.
  void advance_to(time_point to) {
    std::lock_guard lock(mutex_);
    if (to > now_) now_ = to;
  }

 private:
  mutable std::mutex mutex_;
  time_point now_;
};

}  // namespace distgrad::testing
