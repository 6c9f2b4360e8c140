#pragma once
// What tests of endings share: functions that are held back, and endings that must not hang.

#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "rig.hpp"

namespace ending {

/// Holds back whoever wants to pass it while it is shut.
class Gate {
 public:
  /// @return false if it stayed shut for too long.
  bool pass() {
    std::unique_lock lock(mutex_);
    ++visitors_;
    changed_.notify_all();
    return changed_.wait_for(lock, std::chrono::seconds(60), [this] { return !shut_; });
  }
  bool wait_for_visitor(int count = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [&] { return visitors_ >= count; });
  }
  void shut() {
    std::lock_guard lock(mutex_);
    shut_ = true;
    visitors_ = 0;
  }
  void open() {
    std::lock_guard lock(mutex_);
    shut_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool shut_ = false;
  int visitors_ = 0;
};
inline Gate gate;

/// Runs `f` on a thread that nobody joins, so that a hang fails the test instead of holding it.
template <class F>
std::future<void> in_background(F f) {
  std::packaged_task<void()> task(std::move(f));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  return result;
}

inline bool is_over(std::future<void> const& task,
                    std::chrono::seconds bound = std::chrono::seconds(30)) {
  return task.wait_for(bound) == std::future_status::ready;
}

}  // namespace ending
