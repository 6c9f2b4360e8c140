#pragma once
#include <chrono>
#include <concepts>
#include <optional>

#include <distgrad/core/error.hpp>
#include <distgrad/core/worker_info.hpp>

namespace distgrad {

/// Where a call goes, and how long it may take. Made from whatever names a worker, so that
/// `rpc_sync<f>("ps0", x)` and `rpc_sync<f>(within(5s, "ps0"), x)` both read well.
class CallTarget {
 public:
  template <class T>
    requires std::constructible_from<WorkerRef, T const&>
  CallTarget(T const& worker) : worker_(worker) {}
  /// @throws Error `invalid_argument` if `timeout` is negative.
  CallTarget(WorkerRef worker, std::chrono::nanoseconds timeout)
      : worker_(worker), timeout_(timeout) {
    if (timeout < timeout.zero()) {
      throw_error(errc::invalid_argument,
                  "a call's timeout must not be negative; 0 means no limit");
    }
  }

  WorkerRef const& worker() const { return worker_; }
  /// Empty means the engine's default; zero means no limit.
  std::optional<std::chrono::nanoseconds> timeout() const { return timeout_; }

 private:
  WorkerRef worker_;
  std::optional<std::chrono::nanoseconds> timeout_;
};

/// A call to `worker` that may take at most `timeout`; zero means no limit.
/// @throws Error `invalid_argument` if `timeout` is negative.
inline CallTarget within(std::chrono::nanoseconds timeout, WorkerRef worker) {
  return {worker, timeout};
}

}  // namespace distgrad
