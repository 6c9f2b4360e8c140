#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <utility>

#include <distgrad/core/deadline.hpp>

namespace distgrad {

/// How much one `DistEngine::poll` may do. What it leaves waits for the next one.
struct PollBudget {
  /// Steps at most. A step is a message that comes in, or a task: a function that was called, a
  /// node of a backward pass, a continuation.
  std::size_t steps = 256;
  /// No further step begins after so much time; a step that runs is not interrupted. However little
  /// it is, a poll takes in one message and runs one task.
  std::chrono::nanoseconds time = std::chrono::nanoseconds::max();
  /// With nothing to do, sleeps until something is there, or this. The default does not sleep.
  time_point until = time_point::min();
};

/// What a poll did, and when the next one is due.
struct PollResult {
  std::size_t steps = 0;
  /// When to poll again even if nothing comes: at once (`time_point::min()`) after a poll that did
  /// something, otherwise at the first deadline, `time_point::max()` for never.
  time_point next = time_point::min();

  /// `next` as poll(2) and epoll_wait want it: milliseconds from `now`, -1 for no limit.
  int timeout_ms(time_point now = Clock::now()) const {
    if (next == time_point::max()) return -1;
    if (next <= now) return 0;
    auto const longest = milliseconds(std::numeric_limits<int>::max());
    return static_cast<int>(
        std::min<std::chrono::nanoseconds>(std::chrono::ceil<milliseconds>(next - now), longest) /
        milliseconds(1));
  }
};

namespace detail {

/// What is left of a budget.
class PollAllowance {
 public:
  PollAllowance(PollBudget const& budget, TimeSource const& clock)
      : clock_(clock), left_(budget.steps) {
    auto const now = clock.now();
    auto const room = time_point::max() - now;
    if (budget.time < room) {
      end_ = now + std::chrono::duration_cast<Clock::duration>(
                       std::max(budget.time, std::chrono::nanoseconds::zero()));
    }
  }

  /// Lets `work(n)`, which does up to n steps and says how many, use up to `share` of them.
  template <class Work>
  std::size_t spend(std::size_t share, Work&& work) {
    auto const limit = std::min(share, left_);
    auto const done = limit == 0 ? 0 : end_ == time_point::max() ? work(limit) : pace(limit, work);
    left_ -= std::min(done, left_);
    return done;
  }
  std::size_t left() const { return left_; }
  bool has_time() const { return end_ == time_point::max() || clock_.now() < end_; }

 private:
  template <class Work>
  std::size_t pace(std::size_t limit, Work&& work) {
    std::size_t done = 0;
    for (std::size_t step = 1; step != 0 && done < limit; done += step) {
      if (done != 0 && !has_time()) break;
      step = work(1);
    }
    return done;
  }

  TimeSource const& clock_;
  std::size_t left_;
  time_point end_ = time_point::max();
};

}  // namespace detail
}  // namespace distgrad
