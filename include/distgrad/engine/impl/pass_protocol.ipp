#pragma once
#include <distgrad/engine/pass_protocol.hpp>

#include <algorithm>
#include <utility>

namespace distgrad {

// --- discovery -----------------------------------------------------------------------------------

DISTGRAD_DECL PassActions PassProtocol::start(Reached reached) {
  if (!is_running() || std::exchange(has_started_, true)) return {};
  return with_release(discovery_.start(std::move(reached)));
}

DISTGRAD_DECL std::vector<AutogradMessageId> PassProtocol::discover(
    WorkerId from, std::uint32_t number, std::vector<AutogradMessageId> const& messages) {
  if (!takes_part()) return {};
  heard_from_.insert(from);
  return discovery_.discover(from, number, messages);
}

DISTGRAD_DECL PassActions PassProtocol::expanded(WorkerId from, std::uint32_t number,
                                                 Reached reached) {
  if (!takes_part()) return {};
  return {.discovery = discovery_.expanded(from, number, std::move(reached))};
}

DISTGRAD_DECL PassActions PassProtocol::discovered(std::uint32_t number,
                                                   std::set<WorkerId> const& participants) {
  if (!takes_part()) return {};
  auto actions = with_release(discovery_.discovered(number, participants));
  auto failure = fail_if_lost();
  return failure.stop ? failure : actions;
}

DISTGRAD_DECL PassActions PassProtocol::with_release(DiscoveryActions discovery) {
  PassActions actions{.discovery = std::move(discovery)};
  if (!actions.discovery.finished || !options_.is_overlapped) return actions;
  auto const all = participants();
  actions.release.assign(all.begin(), all.end());
  actions.retire = true;
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::release() {
  if (!is_running() || std::exchange(has_retired_, true)) return {};
  return {.retire = true};
}

// --- execution -----------------------------------------------------------------------------------

DISTGRAD_DECL void PassProtocol::gradient_sent(WorkerId to) {
  ++sent_;
  sent_to_.insert(to);
}

DISTGRAD_DECL bool PassProtocol::gradient_received(WorkerId from, AutogradMessageId message) {
  heard_from_.insert(from);
  return got_.insert(message).second;
}

DISTGRAD_DECL PassActions PassProtocol::local_part_complete() {
  if (!is_running() || std::exchange(local_complete_, true)) return {};
  if (is_initiator()) return finish_if_all_done();
  PassActions actions;
  if (lingers()) {
    state_ = State::complete;
  } else {
    actions = finish();
  }
  actions.send_done = true;
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::done(WorkerId from, PassStatus const& last) {
  if (is_initiator() && state_ == State::aborting) return abort_too(last.peers);
  if (!is_running() || !is_initiator()) return {};
  learned_.insert(from);
  learned_.insert(last.peers.begin(), last.peers.end());
  done_.insert(from);
  standstill_.done(from, last);
  auto failure = fail_if_lost();
  return failure.stop ? failure : finish_if_all_done();
}

DISTGRAD_DECL PassActions PassProtocol::finish_if_all_done() {
  auto const all = participants();
  if (!local_complete_ || !std::ranges::includes(done_, all)) return {};
  PassActions actions;
  if (!options_.commits_globally || all.empty()) {
    actions = finish();
  } else {
    state_ = State::committing;
    uncommitted_ = all;
  }
  if (lingers()) actions.commit.assign(all.begin(), all.end());
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::commit() {
  if (state_ != State::complete) return {};
  auto actions = finish();
  actions.send_committed = options_.commits_globally;
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::committed(WorkerId from) {
  if (state_ != State::committing) return {};
  uncommitted_.erase(from);
  return uncommitted_.empty() ? finish() : PassActions{};
}

DISTGRAD_DECL PassActions PassProtocol::finish() {
  state_ = State::finished;
  return {.finished = true};
}

// --- failure -------------------------------------------------------------------------------------

DISTGRAD_DECL PassActions PassProtocol::failed(WireError error) {
  bool const can_fail = is_running() || state_ == State::complete || state_ == State::committing;
  return can_fail ? fail(std::move(error)) : PassActions{};
}

DISTGRAD_DECL PassActions PassProtocol::failed(WorkerId from, WireError error) {
  if (!is_initiator()) return {};
  // Somebody who is lost may have been all that led from the initiator to it.
  if (state_ == State::aborting) return abort_too({from});
  learned_.insert(from);
  return failed(std::move(error));
}

/// Those the initiator did not know when it began to abort.
DISTGRAD_DECL PassActions PassProtocol::abort_too(std::set<WorkerId> const& workers) {
  PassActions actions;
  auto const told = below();
  for (auto const worker : workers) {
    if (worker == self_ || told.contains(worker) || lost_.contains(worker)) continue;
    learned_.insert(worker);
    aborting_.insert(worker);
    actions.abort.push_back(worker);
  }
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::fail(WireError error) {
  if (is_initiator()) return start_abort(std::move(error), below());
  error_ = std::move(error);
  state_ = State::failed;
  return {.stop = true, .send_failed = true};
}

DISTGRAD_DECL PassActions PassProtocol::start_abort(WireError error, std::set<WorkerId> to) {
  if (!error_) error_ = std::move(error);
  state_ = State::aborting;
  to.erase(self_);
  aborting_ = std::move(to);
  return {.stop = true, .abort = {aborting_.begin(), aborting_.end()}};
}

DISTGRAD_DECL PassActions PassProtocol::abort(WorkerId from) {
  if (is_initiator() || is_finished() || state_ == State::aborting) return {.aborted = {from}};
  aborter_ = from;
  auto to = below();
  to.erase(initiator_);  // it is where the abort comes from, in the end
  to.erase(from);
  return start_abort({errc::pass_aborted, {}, {}, {}, "the initiator ended the pass"},
                     std::move(to));
}

DISTGRAD_DECL PassActions PassProtocol::aborted(WorkerId from, PassStatus last) {
  if (state_ != State::aborting || aborting_.erase(from) == 0) return {};
  last_words_[from] = std::move(last);
  return finish_if_aborted();
}

DISTGRAD_DECL PassActions PassProtocol::stopped() {
  if (state_ != State::aborting) return {};
  has_stopped_ = true;
  return finish_if_aborted();
}

DISTGRAD_DECL PassActions PassProtocol::finish_if_aborted() {
  if (!has_stopped_ || !aborting_.empty()) return {};
  auto actions = finish();
  if (aborter_) actions.aborted = {*aborter_};
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::peer_lost(WorkerId peer, WireError error) {
  if (is_finished()) return {};
  if (peer == initiator_) return abandon(std::move(error));
  if (state_ == State::aborting) {
    if (aborter_ == peer) aborter_.reset();
    return aborting_.erase(peer) != 0 ? finish_if_aborted() : PassActions{};
  }
  if (!involves(peer)) {
    if (is_initiator()) lost_.try_emplace(peer, std::move(error));
    return {};
  }
  auto actions = failed(std::move(error));
  aborting_.erase(peer);
  std::erase(actions.abort, peer);
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::fail_if_lost() {
  auto const all = participants();
  auto const lost =
      std::ranges::find_if(lost_, [&](auto const& entry) { return all.contains(entry.first); });
  return lost == lost_.end() ? PassActions{} : peer_lost(lost->first, lost->second);
}

DISTGRAD_DECL PassActions PassProtocol::abandon(WireError error) {
  if (is_finished()) return {};
  auto actions = state_ == State::aborting ? PassActions{} : start_abort(std::move(error), below());
  if (!error_) error_ = std::move(error);
  actions.stop = true;
  if (aborter_) actions.aborted = {*aborter_};
  state_ = State::finished;
  actions.finished = true;
  return actions;
}

// --- the watchdog of FAST mode -------------------------------------------------------------------

DISTGRAD_DECL PassActions PassProtocol::tick() {
  if (!is_running() || !is_initiator()) return {};
  auto all = participants();
  std::erase_if(all, [&](WorkerId worker) { return done_.contains(worker); });
  PassActions actions{.query = {all.begin(), all.end()}};
  all.insert(self_);
  actions.query_round = standstill_.begin_round(all);
  if (actions.query_round == 0) actions.query.clear();
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::status(WorkerId from, PassStatus const& status) {
  if (!is_running() || !is_initiator()) return {};
  learned_.insert(status.peers.begin(), status.peers.end());
  if (auto failure = fail_if_lost(); failure.stop) return failure;
  if (!standstill_.answer(from, status)) return {};
  last_words_ = standstill_.answers();
  return fail({errc::pass_stuck,
               {},
               {},
               {},
               "FAST mode takes every call of the context as part of the pass, but no gradient "
               "will come for some: their results are not used. Run it in SMART mode, or make "
               "such calls outside of the context or under NoGradGuard"});
}

DISTGRAD_DECL PassStatus PassProtocol::own_status(std::uint32_t round) const {
  return {round, false, sent_, got_.size(), sent_to_, {}, {}};
}

// --- who takes part ------------------------------------------------------------------------------

DISTGRAD_DECL std::set<WorkerId> PassProtocol::peers() const {
  auto all = sent_to_;
  all.insert(discovery_.asked().begin(), discovery_.asked().end());
  return all;
}

DISTGRAD_DECL std::set<WorkerId> PassProtocol::participants() const {
  auto all = learned_;
  all.insert(discovery_.participants().begin(), discovery_.participants().end());
  all.insert(sent_to_.begin(), sent_to_.end());
  all.erase(initiator_);
  return all;
}

/// Whom an abort goes to from here.
DISTGRAD_DECL std::set<WorkerId> PassProtocol::below() const {
  auto all = peers();
  if (is_initiator()) all.merge(participants());
  return all;
}

DISTGRAD_DECL bool PassProtocol::involves(WorkerId worker) const {
  return worker == initiator_ || heard_from_.contains(worker) || peers().contains(worker) ||
         participants().contains(worker);
}

}  // namespace distgrad
