#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/engine/discovery_protocol.hpp>
#include <distgrad/engine/pass_options.hpp>
#include <distgrad/engine/pass_status.hpp>
#include <distgrad/engine/standstill_detector.hpp>
#include <distgrad/wire/error_frame.hpp>

namespace distgrad {

/// What the shell of a `PassProtocol` shall do, in this order.
struct PassActions {
  DiscoveryActions discovery = {};
  /// What is not known to take part does not: wait for nothing from it.
  bool retire = false;
  /// Stop running nodes, then say `stopped`.
  bool stop = false;
  /// Tell the initiator that this worker's part is complete.
  bool send_done = false;
  /// Tell the initiator that this worker's part failed.
  bool send_failed = false;
  /// Tell the initiator that this worker's gradients are visible.
  bool send_committed = false;
  /// Tell these that discovery is finished.
  std::vector<WorkerId> release = {};
  std::vector<WorkerId> commit = {};
  std::vector<WorkerId> abort = {};
  /// Tell these that this worker's part was aborted and has stopped.
  std::vector<WorkerId> aborted = {};
  /// Ask these workers, and this one, for their `PassStatus` of this round.
  std::vector<WorkerId> query = {};
  std::uint32_t query_round = 0;
  /// The pass is over on this worker.
  bool finished = false;
};

/// One worker's part in a backward pass: who takes part, when it is over, why it failed. A state
/// machine without I/O; the shell feeds it and carries out its actions. The shell makes a worker's
/// gradients visible before it says that its part is complete, with global commit before it says
/// `commit`, and the initiator's when the pass is finished.
///
/// | state | event | next | actions |
/// |---|---|---|---|
/// | running | part complete, participant | finished; lingering: complete | send_done |
/// | running | part complete or a done, initiator, all are done | finished | commit all, lingering
/// | | the same | with global commit and participants | committing | commit all | | complete |
/// commit | finished | send_committed, with global commit | | running, overlapped | discovery
/// finished, initiator | same | release all, retire | | running | release | same | retire | |
/// committing | the last participant committed | finished | - | | running, complete | failure,
/// participant | failed | stop, send_failed | | running, committing | failure, own or reported,
/// initiator | aborting | stop, abort all | | running, complete, failed | abort | aborting | stop,
/// abort those this worker asked or sent to | | aborting | stopped, and all it aborted have
/// answered | finished | aborted to who aborted it | | aborting | abort from another worker | same
/// | aborted to that one | | aborting | failure or done, initiator | same | abort to those it did
/// not know yet | | running | tick, initiator, FAST | same | query | | running | answer that proves
/// a standstill | aborting | stop, abort all | | any | initiator lost, or the engine ends |
/// finished | stop, abort as above | | finished | anything | finished | - |
///
/// Who takes part is known from the discovery, if there was one before the gradients. Otherwise,
/// in FAST mode and while nodes run before it is finished, it is learned on the way: every done
/// lists the workers its sender sent gradients to, and a worker that received any is on somebody's
/// list before that one is done. So the initiator knows everybody once all it knows are done, and
/// needs no extra message for it.
///
/// A part lingers, complete but not finished, with global commit, and when discovery may still come
/// by: what it reached is then still to be told.
///
/// An abort spreads from each worker to those it asked or sent to, so it also finds workers the
/// initiator never heard of; each answers when it has stopped and all below it have answered. If
/// the one that led to them is lost, they fail, and their report leads the abort to them.
/// @threads one thread at a time.
class PassProtocol {
 public:
  PassProtocol(WorkerId self, WorkerId initiator, PassOptions options = {})
      : self_(self), initiator_(initiator), options_(options), discovery_(self, initiator) {}

  bool is_initiator() const { return self_ == initiator_; }
  /// Neither over nor about to be: nodes may run.
  bool is_running() const { return state_ == State::running; }
  /// Its own part is complete, and the others' may not be.
  bool awaits_commit() const { return state_ == State::complete; }
  bool is_finished() const { return state_ == State::finished; }
  /// The first error; empty if none.
  std::optional<WireError> const& error() const { return error_; }

  // Discovery, in SMART mode.
  /// At the initiator, once: before its nodes run, or later if they are overlapped.
  PassActions start(Reached reached);
  bool has_started() const { return has_started_; }
  std::vector<AutogradMessageId> discover(WorkerId from, std::uint32_t number,
                                          std::vector<AutogradMessageId> const& messages);
  PassActions expanded(WorkerId from, std::uint32_t number, Reached reached);
  PassActions discovered(std::uint32_t number, std::set<WorkerId> const& participants);
  PassActions release();
  DiscoveryProtocol const& discovery() const { return discovery_; }

  // Execution.
  void gradient_sent(WorkerId to);
  /// @return false if it came before: drop it.
  bool gradient_received(WorkerId from, AutogradMessageId message);
  PassActions local_part_complete();
  /// @param last what `from` says of its part for the last time.
  PassActions done(WorkerId from, PassStatus const& last);
  PassActions commit();
  PassActions committed(WorkerId from);

  // Failure.
  PassActions failed(WireError error);
  /// `from` says that its part failed. It waits to be aborted, whoever knew of it.
  PassActions failed(WorkerId from, WireError error);
  PassActions abort(WorkerId from);
  PassActions aborted(WorkerId from, PassStatus last);
  /// Nothing runs any more; the shell says so after `stop`.
  PassActions stopped();
  /// Of a worker that is found later to take part, the initiator remembers it.
  PassActions peer_lost(WorkerId peer, WireError error);
  /// Ends this part at once: the engine ends, or the initiator waited long enough for the aborted.
  PassActions abandon(WireError error);

  // Watchdog of FAST mode.
  /// Time passed; the shell calls it at the watchdog's interval.
  PassActions tick();
  /// A participant's answer, or the initiator's own status.
  PassActions status(WorkerId from, PassStatus const& status);
  /// This worker's counts for a status; the shell adds what only it knows.
  PassStatus own_status(std::uint32_t round) const;

  /// Workers this one asked or sent gradients to.
  std::set<WorkerId> peers() const;
  /// Workers that take part besides the initiator, as far as it knows.
  std::set<WorkerId> participants() const;
  /// Whether the pass waits for `worker`, or was brought here by it.
  bool involves(WorkerId worker) const;
  /// Aborted workers that have not answered.
  std::set<WorkerId> const& unanswered() const { return aborting_; }
  /// What the others waited for when the pass failed, as far as they could say.
  std::map<WorkerId, PassStatus> const& last_words() const { return last_words_; }

 private:
  enum class State : std::uint8_t { running, complete, committing, failed, aborting, finished };

  bool takes_part() const { return is_running() || state_ == State::complete; }
  bool lingers() const { return options_.commits_globally || options_.is_overlapped; }
  PassActions finish();
  PassActions with_release(DiscoveryActions discovery);
  PassActions finish_if_all_done();
  PassActions finish_if_aborted();
  PassActions start_abort(WireError error, std::set<WorkerId> to);
  PassActions fail(WireError error);
  PassActions fail_if_lost();
  PassActions abort_too(std::set<WorkerId> const& workers);
  std::set<WorkerId> below() const;

  WorkerId self_, initiator_;
  PassOptions options_;
  State state_ = State::running;
  DiscoveryProtocol discovery_;
  bool has_started_ = false;
  bool has_retired_ = false;
  bool local_complete_ = false;
  std::set<WorkerId> sent_to_, heard_from_;
  std::set<AutogradMessageId> got_;
  std::uint64_t sent_ = 0;
  std::optional<WireError> error_;
  bool has_stopped_ = false;
  std::set<WorkerId> aborting_;      // told to abort, have not answered
  std::optional<WorkerId> aborter_;  // waits for this worker's answer
  std::map<WorkerId, PassStatus> last_words_;

  // initiator only
  std::set<WorkerId> learned_, done_, uncommitted_;
  std::map<WorkerId, WireError> lost_;  // not known to take part
  StandstillDetector standstill_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/pass_protocol.ipp>
#endif
