#pragma once
#include <chrono>

namespace distgrad {

using Clock = std::chrono::steady_clock;
using time_point = Clock::time_point;
using std::chrono::milliseconds;

/// Where the library reads the time, so that a test can move it. @threads safe: shared object.
class TimeSource {
 public:
  virtual ~TimeSource() = default;
  virtual time_point now() const { return Clock::now(); }
};

/// The point in time at which an operation gives up.
struct Deadline {
  time_point at = time_point::max();

  /// `timeout` zero means never; more than about a hundred years is never, too.
  static Deadline after(std::chrono::nanoseconds timeout, time_point now = Clock::now()) {
    if (timeout <= timeout.zero() || timeout > std::chrono::hours(24 * 365 * 100)) return {};
    return {now + std::chrono::duration_cast<Clock::duration>(timeout)};
  }
  static Deadline never() { return {}; }
  bool is_never() const { return at == time_point::max(); }
  bool has_passed(time_point now = Clock::now()) const { return !is_never() && now >= at; }
};

}  // namespace distgrad
