#pragma once
#include <cstdint>
#include <map>
#include <set>

#include <distgrad/config.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/engine/pass_status.hpp>

namespace distgrad {

/// Proves that a pass in FAST mode can never go on. A state machine without I/O.
///
/// It does not guess from time: it asks every worker that is not done how many gradients it sent
/// and received. If two rounds in a row find all idle with equal totals, and as many received as
/// sent, nothing is on its way and nothing can happen any more (Mattern's four counters). Those who
/// are done are not asked: what they said last counts, and two new rounds begin after it.
/// @threads one thread at a time.
class StandstillDetector {
 public:
  /// A worker is done; `last` are its final counts.
  void done(WorkerId worker, PassStatus const& last);
  /// Begins a round, unless answers of the last one are still on their way.
  /// @param workers those who are not done, the asking one included.
  /// @return the round's number, with which each of them shall answer; 0 if none begins.
  std::uint32_t begin_round(std::set<WorkerId> const& workers);
  /// @return whether this answer completes the proof.
  bool answer(WorkerId worker, PassStatus const& status);

  /// The answers of the last complete round.
  std::map<WorkerId, PassStatus> const& answers() const { return answers_; }

 private:
  bool is_complete() const { return answers_.size() == asked_.size(); }
  bool is_proof() const;

  std::uint32_t round_ = 0;
  bool is_open_ = false;
  std::set<WorkerId> asked_;
  std::map<WorkerId, PassStatus> answers_, last_answers_;
  std::set<WorkerId> done_;
  std::uint64_t done_sent_ = 0, done_received_ = 0;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/standstill_detector.ipp>
#endif
