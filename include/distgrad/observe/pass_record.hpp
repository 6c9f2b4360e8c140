#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include <distgrad/core/error.hpp>
#include <distgrad/core/ids.hpp>

namespace distgrad {

/// One worker's part in one backward pass, as far as it has come.
struct PassRecord {
  PassId id;
  bool is_smart = true;
  bool is_initiator = false;
  /// When this worker began with it, on its wall clock.
  std::chrono::system_clock::time_point began;
  /// So far, or altogether.
  std::chrono::nanoseconds duration{0};
  /// Gradient messages to and from other workers.
  std::uint64_t gradients_sent = 0, gradients_received = 0;
  /// What it failed with; success otherwise.
  error_code error;
};

/// The passes that ended last. @threads safe: shared object.
class PassHistory {
 public:
  static constexpr std::size_t capacity = 256;

  void add(PassRecord record) {
    std::lock_guard lock(mutex_);
    records_.push_back(std::move(record));
    if (records_.size() > capacity) records_.pop_front();
  }
  /// In the order in which they ended.
  std::vector<PassRecord> snapshot() const {
    std::lock_guard lock(mutex_);
    return {records_.begin(), records_.end()};
  }

 private:
  mutable std::mutex mutex_;
  std::deque<PassRecord> records_;
};

}  // namespace distgrad
