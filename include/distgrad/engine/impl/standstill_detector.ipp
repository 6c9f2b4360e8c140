#pragma once
#include <distgrad/engine/standstill_detector.hpp>

#include <utility>

namespace distgrad {

DISTGRAD_DECL void StandstillDetector::done(WorkerId worker, PassStatus const& last) {
  if (!done_.insert(worker).second) return;
  done_sent_ += last.sent;
  done_received_ += last.received;
  is_open_ = false;  // its answers are of a time when these counts were not final
  answers_.clear();
  last_answers_.clear();
}

DISTGRAD_DECL std::uint32_t StandstillDetector::begin_round(std::set<WorkerId> const& workers) {
  if (is_open_) return 0;
  last_answers_ = std::exchange(answers_, {});
  asked_ = workers;
  is_open_ = true;
  return ++round_;
}

DISTGRAD_DECL bool StandstillDetector::answer(WorkerId worker, PassStatus const& status) {
  if (!is_open_ || status.round != round_ || !asked_.contains(worker)) return false;
  answers_[worker] = status;
  if (!is_complete()) return false;
  is_open_ = false;
  return is_proof();
}

DISTGRAD_DECL bool StandstillDetector::is_proof() const {
  std::uint64_t sent = done_sent_, received = done_received_;
  if (answers_.size() != last_answers_.size()) return false;
  for (auto const& [worker, now] : answers_) {
    auto const before = last_answers_.find(worker);
    if (before == last_answers_.end() || !now.is_idle || !before->second.is_idle ||
        now.sent != before->second.sent || now.received != before->second.received) {
      return false;
    }
    // A worker nobody asked may still be at work.
    for (auto const peer : now.peers) {
      if (!asked_.contains(peer) && !done_.contains(peer)) return false;
    }
    sent += now.sent;
    received += now.received;
  }
  return sent == received;
}

}  // namespace distgrad
