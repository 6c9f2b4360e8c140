#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include <distgrad/autograd/context_graph.hpp>
#include <distgrad/core/deadline.hpp>

namespace distgrad {

/// Graphs of contexts that were released, for whoever looks a moment later. Where contexts end
/// faster than anybody could look, it keeps about four of a second: which ones depends on their ids
/// alone, so that all workers keep their parts of the same. @threads safe: shared object.
class ContextHistory {
 public:
  static constexpr std::size_t capacity = 64;
  static constexpr std::uint64_t kept_per_second = 4;

  /// Whether the graph of the context that ends now shall be kept.
  bool wants(ContextId id, time_point now) {
    std::lock_guard lock(mutex_);
    ++ended_;
    if (auto const elapsed = now - window_began_; elapsed >= std::chrono::seconds(1)) {
      auto const rate = ended_ / std::chrono::duration<double>(elapsed).count();
      // A power of two: workers that disagree by one step still agree on every second one.
      stride_ = std::bit_ceil(std::max<std::uint64_t>(1, std::uint64_t(rate) / kept_per_second));
      ended_ = 0;
      window_began_ = now;
    }
    return std::hash<ContextId>()(id) % stride_ == 0;
  }
  void add(ContextGraph graph) {
    std::lock_guard lock(mutex_);
    graphs_.push_back(std::move(graph));
    if (graphs_.size() > capacity) graphs_.pop_front();
  }

  /// Oldest first.
  std::vector<ContextId> ids() const {
    std::lock_guard lock(mutex_);
    std::vector<ContextId> ids;
    for (auto const& graph : graphs_) ids.push_back(graph.context);
    return ids;
  }
  std::optional<ContextGraph> find(ContextId id) const {
    std::lock_guard lock(mutex_);
    auto const at = std::ranges::find(graphs_, id, &ContextGraph::context);
    return at == graphs_.end() ? std::nullopt : std::optional(*at);
  }

 private:
  mutable std::mutex mutex_;
  std::deque<ContextGraph> graphs_;
  time_point window_began_{};
  std::uint64_t ended_ = 0, stride_ = 1;
};

}  // namespace distgrad
