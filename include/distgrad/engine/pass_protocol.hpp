#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/wire/error_frame.hpp>

namespace distgrad {

/// A send function that waits for its gradients.
struct AwaitedSend {
  AutogradMessageId message;
  /// The worker that should send them.
  WorkerId from;
  friend bool operator==(AwaitedSend const&, AwaitedSend const&) = default;
};

/// What one worker says of its part of a pass.
struct PassStatus {
  std::uint32_t round = 0;
  /// Nothing runs, is ready or waits to be delivered.
  bool is_idle = false;
  /// Gradient messages sent and received so far, those to itself not counted.
  std::uint64_t sent = 0, received = 0;
  std::set<WorkerId> peers;
  std::vector<AwaitedSend> awaited;
};

/// What the shell of a `PassProtocol` shall do, in this order.
struct PassActions {
  /// Tell the initiator that this worker's part is complete.
  bool send_done = false;
  /// Tell the initiator that this worker's part failed.
  bool send_failed = false;
  std::vector<WorkerId> abort;
  /// Ask these workers for their `PassStatus` of this round.
  std::vector<WorkerId> query;
  std::uint32_t query_round = 0;
  /// The pass is over on this worker.
  bool finished = false;
};

/// One worker's part in a backward pass: who takes part, when it is over, why it failed. A state
/// machine without I/O; the shell feeds it and carries out its actions.
///
/// | state | event | next | actions |
/// |---|---|---|---|
/// | running | local part complete, participant | finished | send_done |
/// | running | local part complete, initiator, all participants done | finished | - |
/// | running | local part complete, initiator, else | waiting | - |
/// | running, waiting | done of the last participant, local part complete | finished | - |
/// | running, waiting | failure, participant | finished | send_failed |
/// | running, waiting | failure (own or reported), initiator | finished | abort all participants |
/// | running | abort | finished | abort those this worker sent gradients to |
/// | running, waiting | tick, initiator | same | query, when the watchdog is due |
/// | running, waiting | status that proves the pass stuck | finished | abort all participants |
/// | finished | anything | finished | - |
///
/// Who takes part is learned on the way: every DONE lists the workers its sender sent gradients
/// to, and a worker that received any is on somebody's list before that one is done. So the
/// initiator knows everybody once all it knows are done, and needs no extra message for it.
///
/// The watchdog does not guess from time: it asks every participant how many gradients it sent
/// and received. If two rounds in a row find all idle with equal totals, and as many received as
/// sent, nothing is on its way and nothing can happen any more (Mattern's four counters). Those who
/// are done are not asked: their DONE has their last counts, and two new rounds begin after it.
/// @threads one thread at a time.
class PassProtocol {
 public:
  PassProtocol(WorkerId self, WorkerId initiator) : self_(self), initiator_(initiator) {}

  bool is_initiator() const { return self_ == initiator_; }
  bool is_finished() const { return finished_; }
  /// The first error; empty if none.
  std::optional<WireError> const& error() const { return error_; }

  void gradient_sent(WorkerId to);
  void gradient_received(WorkerId from);
  PassActions local_part_complete();
  /// @param last what `from` says of its part for the last time.
  PassActions done(WorkerId from, PassStatus last);
  PassActions failed(WireError error);
  PassActions aborted();

  /// Time passed; the shell calls it at the watchdog's interval. @return a query, if one is due.
  PassActions tick();
  /// A participant's answer, or the initiator's own status.
  PassActions status(WorkerId from, PassStatus status);
  /// This worker's counts for a status; the shell adds what only it knows.
  PassStatus own_status(std::uint32_t round) const;

  std::set<WorkerId> const& peers() const { return sent_to_; }
  std::set<WorkerId> const& participants() const { return participants_; }
  /// Participants that are not done yet.
  std::vector<WorkerId> unfinished() const;

 private:
  bool everybody_done() const;
  void learn(std::set<WorkerId> const& workers);
  PassActions finish_with_abort(WireError error);
  bool round_is_complete() const;
  bool round_proves_stuck() const;
  std::string stuck_text() const;

  WorkerId self_, initiator_;
  bool finished_ = false;
  bool local_complete_ = false;
  std::set<WorkerId> sent_to_;
  std::uint64_t sent_ = 0, received_ = 0;
  std::optional<WireError> error_;

  // initiator only
  std::set<WorkerId> participants_;
  std::map<WorkerId, PassStatus> done_;
  std::uint32_t round_ = 0;
  std::map<WorkerId, PassStatus> answers_, last_answers_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/pass_protocol.ipp>
#endif
