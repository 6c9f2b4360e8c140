#pragma once
#include <distgrad/rpc/shutdown_barrier.hpp>

namespace distgrad {

DISTGRAD_DECL std::vector<ShutdownBarrier::Send> ShutdownBarrier::want_to_leave() {
  return {{WorkerId{0}, FrameKind::shutdown_ready}};
}

DISTGRAD_DECL std::vector<ShutdownBarrier::Send> ShutdownBarrier::on_message(WorkerId from,
                                                                             FrameKind kind,
                                                                             std::uint64_t round,
                                                                             std::uint64_t calls) {
  switch (kind) {
    case FrameKind::shutdown_check: asked_ = round; return {};
    case FrameKind::shutdown_leave: left_ = true; return {};
    case FrameKind::shutdown_ready: ready_.insert(from); return next_step();
    case FrameKind::shutdown_state:
      if (round == round_) calls_[from] = calls;
      return next_step();
    default: return {};
  }
}

DISTGRAD_DECL std::vector<ShutdownBarrier::Send> ShutdownBarrier::look(bool is_idle,
                                                                       std::uint64_t calls_made) {
  if (!asked_ || !is_idle) return {};
  auto const round = *std::exchange(asked_, std::nullopt);
  return {{WorkerId{0}, FrameKind::shutdown_state, round, calls_made}};
}

DISTGRAD_DECL std::vector<ShutdownBarrier::Send> ShutdownBarrier::peer_lost(WorkerId worker) {
  if (worker == WorkerId{0}) left_ = true;  // nobody is left to count
  lost_.insert(worker);
  return next_step();
}

DISTGRAD_DECL std::vector<WorkerId> ShutdownBarrier::missing() const {
  std::vector<WorkerId> workers;
  for (std::uint32_t rank = 0; is_counting() && rank < world_size_; ++rank) {
    WorkerId const worker{rank};
    if (!ready_.contains(worker) && !lost_.contains(worker)) workers.push_back(worker);
  }
  return workers;
}

DISTGRAD_DECL std::vector<ShutdownBarrier::Send> ShutdownBarrier::next_step() {
  if (!is_counting() || over_ || !missing().empty()) return {};
  if (round_ != 0) {
    for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
      if (!calls_.contains({rank}) && !lost_.contains({rank})) return {};
    }
    if (calls_ == last_calls_) {
      over_ = true;
      return to_all(FrameKind::shutdown_leave, round_);
    }
  }
  last_calls_ = std::exchange(calls_, {});
  return to_all(FrameKind::shutdown_check, ++round_);
}

DISTGRAD_DECL std::vector<ShutdownBarrier::Send> ShutdownBarrier::to_all(
    FrameKind kind, std::uint64_t round) const {
  std::vector<Send> sends;
  for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
    if (!lost_.contains({rank})) sends.push_back({{rank}, kind, round});
  }
  return sends;
}

}  // namespace distgrad
