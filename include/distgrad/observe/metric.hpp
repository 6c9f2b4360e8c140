#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace distgrad {

/// A number that only grows. @threads safe: shared object. @cost one relaxed addition.
class MetricCounter {
 public:
  void add(std::uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// A number that goes up and down. @threads safe: shared object.
class MetricGauge {
 public:
  void add(std::int64_t n) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  std::int64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

/// How long things took, by size: enough to tell quantiles without keeping the values.
/// @threads safe: shared object. @cost a search in 21 numbers and two relaxed additions.
class MetricHistogram {
 public:
  using nanoseconds = std::chrono::nanoseconds;
  /// Upper ends of the buckets, inclusive; one more bucket holds what is longer than the last.
  static constexpr std::array bounds = [] {
    using namespace std::chrono_literals;
    return std::array<nanoseconds, 21>{10us,   25us, 50us,   100us, 250us, 500us, 1ms,
                                       2500us, 5ms,  10ms,   25ms,  50ms,  100ms, 250ms,
                                       500ms,  1s,   2500ms, 5s,    10s,   30s,   60s};
  }();

  struct Snapshot {
    /// Values in each bucket alone, not in those below it.
    std::array<std::uint64_t, bounds.size() + 1> buckets{};
    std::uint64_t count = 0;
    nanoseconds sum{0};
  };

  void observe(nanoseconds value) noexcept {
    std::size_t bucket = 0;
    while (bucket < bounds.size() && value > bounds[bucket]) ++bucket;
    buckets_[bucket].add();
    sum_.add(static_cast<std::uint64_t>(value.count()));
  }

  /// Its count is the sum of its buckets, also while others add.
  Snapshot snapshot() const noexcept {
    Snapshot now;
    now.sum = nanoseconds(static_cast<std::int64_t>(sum_.value()));
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      now.count += now.buckets[i] = buckets_[i].value();
    }
    return now;
  }

 private:
  std::array<MetricCounter, bounds.size() + 1> buckets_;
  MetricCounter sum_;
};

}  // namespace distgrad
