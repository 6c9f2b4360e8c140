#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distgrad/core/error.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/observe/metric.hpp>

namespace distgrad {

/// How often something failed, by the error's name. @threads safe: shared object.
class FailureCounts {
 public:
  void add(error_code const& code) noexcept {
    try {
      std::lock_guard lock(mutex_);
      ++counts_[error_name(code)];
    } catch (...) {
      // Without memory for a new name one failure is not counted; what failed goes on.
    }
  }
  std::map<std::string, std::uint64_t> snapshot() const {
    std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t> counts_;
};

/// The calls of one function between this worker and one peer.
struct CallSeries {
  CallSeries(std::string f, WorkerId p) : function(std::move(f)), peer(p) {}
  std::string const function;
  WorkerId const peer;
  MetricCounter begun;
  MetricHistogram duration;  ///< Of those that ended, however they did.
  FailureCounts failures;
};

/// The series of calls by function and peer. Looking one up takes no lock; none ever goes away.
/// @threads safe: shared object.
class CallSeriesTable {
 public:
  /// Functions beyond this many pairs of function and peer share one series for each peer: what a
  /// monitoring system pays for is the number of series.
  static constexpr std::size_t max_series = 1000;
  static constexpr std::string_view overflow_name = "(other)";

  CallSeriesTable() = default;
  CallSeriesTable(CallSeriesTable const&) = delete;
  CallSeriesTable& operator=(CallSeriesTable const&) = delete;
  ~CallSeriesTable() {
    for (auto& chain : chains_) {
      for (auto* link = chain.load(); link != nullptr;) delete std::exchange(link, link->next);
    }
  }

  CallSeries& at(std::string_view function, WorkerId peer) {
    auto& chain = chain_of(function, peer);
    if (auto* found = find(chain, function, peer)) return *found;
    return insert(chain, function, peer);
  }

  /// All series, ordered by function and peer.
  std::vector<CallSeries const*> all() const {
    std::map<std::pair<std::string_view, WorkerId>, CallSeries const*> sorted;
    for (auto const& chain : chains_) {
      for (auto const* link = chain.load(std::memory_order_acquire); link; link = link->next) {
        sorted.emplace(std::pair(std::string_view(link->series.function), link->series.peer),
                       &link->series);
      }
    }
    std::vector<CallSeries const*> series;
    for (auto const& [key, one] : sorted) series.push_back(one);
    return series;
  }

 private:
  struct Link {
    CallSeries series;
    Link* next;
  };
  using Chain = std::atomic<Link*>;

  Chain& chain_of(std::string_view function, WorkerId peer) {
    auto const hash = detail::mix_hash(std::hash<std::string_view>()(function), peer.value);
    return chains_[hash % chains_.size()];
  }
  static CallSeries* find(Chain const& chain, std::string_view function, WorkerId peer) {
    for (auto* link = chain.load(std::memory_order_acquire); link; link = link->next) {
      if (link->series.peer == peer && link->series.function == function) return &link->series;
    }
    return nullptr;
  }
  CallSeries& insert(Chain& chain, std::string_view function, WorkerId peer) {
    std::unique_lock lock(mutex_);
    if (auto* found = find(chain, function, peer)) return *found;
    if (size_ >= max_series && function != overflow_name) {
      lock.unlock();
      return at(overflow_name, peer);
    }
    ++size_;
    auto* const link = new Link{{std::string(function), peer}, chain.load()};
    chain.store(link, std::memory_order_release);
    return link->series;
  }

  std::array<Chain, 256> chains_{};
  std::mutex mutex_;  // who adds a series
  std::size_t size_ = 0;
};

}  // namespace distgrad
