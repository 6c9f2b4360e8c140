#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>

namespace distgrad {

/// What `CpuQueues` is made with.
struct CpuQueuesOptions {
  /// Tasks that run at the same time.
  std::size_t threads = std::max(1u, std::thread::hardware_concurrency());
  /// Most threads, the waiting ones included. One more wait throws `errc::pool_exhausted`.
  std::size_t max_threads = 1024;
  /// How long a thread that replaced a waiting one is kept when it is not needed.
  std::chrono::milliseconds spare_thread_timeout{10000};
};

}  // namespace distgrad
