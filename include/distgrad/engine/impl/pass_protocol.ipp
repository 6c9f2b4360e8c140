#pragma once
#include <algorithm>

#include <distgrad/engine/pass_protocol.hpp>

namespace distgrad {

DISTGRAD_DECL void PassProtocol::gradient_sent(WorkerId to) {
  ++sent_;
  sent_to_.insert(to);
  if (is_initiator()) participants_.insert(to);
}

DISTGRAD_DECL void PassProtocol::gradient_received(WorkerId) { ++received_; }

DISTGRAD_DECL bool PassProtocol::everybody_done() const {
  return local_complete_ && unfinished().empty();
}

DISTGRAD_DECL void PassProtocol::learn(std::set<WorkerId> const& workers) {
  for (auto const worker : workers) {
    if (worker != self_) participants_.insert(worker);
  }
}

DISTGRAD_DECL std::vector<WorkerId> PassProtocol::unfinished() const {
  std::vector<WorkerId> open;
  std::ranges::copy_if(participants_, std::back_inserter(open),
                       [&](WorkerId w) { return !done_.contains(w); });
  return open;
}

DISTGRAD_DECL PassActions PassProtocol::local_part_complete() {
  PassActions actions;
  if (finished_ || local_complete_) return actions;
  local_complete_ = true;
  if (!is_initiator()) {
    actions.send_done = actions.finished = finished_ = true;
  } else {
    actions.finished = finished_ = everybody_done();
  }
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::done(WorkerId from, PassStatus last) {
  PassActions actions;
  if (finished_ || !is_initiator()) return actions;
  learn({from});
  learn(last.peers);
  done_[from] = std::move(last);
  answers_.clear();  // they are of a time when its counts were not final
  last_answers_.clear();
  actions.finished = finished_ = everybody_done();
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::finish_with_abort(WireError error) {
  PassActions actions;
  error_ = std::move(error);
  actions.finished = finished_ = true;
  if (is_initiator()) {
    actions.abort.assign(participants_.begin(), participants_.end());
  } else {
    actions.send_failed = true;
  }
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::failed(WireError error) {
  if (finished_) return {};
  return finish_with_abort(std::move(error));
}

DISTGRAD_DECL PassActions PassProtocol::aborted() {
  PassActions actions;
  if (finished_) return actions;
  error_ = WireError{errc::pass_aborted, {}, {}, {}, "the initiator ended the pass"};
  actions.finished = finished_ = true;
  actions.abort.assign(sent_to_.begin(), sent_to_.end());  // it may not know them
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::tick() {
  PassActions actions;
  if (finished_ || !is_initiator()) return actions;
  // A round whose answers are late is given up: totals of different times prove nothing.
  last_answers_ = round_is_complete() ? std::move(answers_) : std::map<WorkerId, PassStatus>();
  answers_.clear();
  actions.query = unfinished();
  actions.query_round = ++round_;
  return actions;
}

DISTGRAD_DECL PassActions PassProtocol::status(WorkerId from, PassStatus status) {
  if (finished_ || !is_initiator() || status.round != round_ || done_.contains(from)) return {};
  learn(status.peers);
  answers_[from] = std::move(status);
  if (!round_is_complete() || !round_proves_stuck()) return {};
  return finish_with_abort({errc::pass_stuck, {}, {}, {}, stuck_text()});
}

DISTGRAD_DECL PassStatus PassProtocol::own_status(std::uint32_t round) const {
  return {round, false, sent_, received_, sent_to_, {}};
}

DISTGRAD_DECL bool PassProtocol::round_is_complete() const {
  return round_ != 0 && answers_.contains(self_) &&
         std::ranges::all_of(unfinished(), [&](WorkerId w) { return answers_.contains(w); });
}

DISTGRAD_DECL bool PassProtocol::round_proves_stuck() const {
  if (answers_.size() != last_answers_.size()) return false;
  std::uint64_t sent = 0, received = 0;
  for (auto const& [worker, last] : done_) {
    sent += last.sent;
    received += last.received;
  }
  for (auto const& [worker, now] : answers_) {
    auto const before = last_answers_.find(worker);
    if (before == last_answers_.end() || !now.is_idle || !before->second.is_idle ||
        now.sent != before->second.sent || now.received != before->second.received) {
      return false;
    }
    sent += now.sent;
    received += now.received;
  }
  return sent == received;
}

DISTGRAD_DECL std::string PassProtocol::stuck_text() const {
  std::string text =
      "FAST mode takes every send function of the context as part of the pass, but no gradient "
      "will come for:";
  for (auto const& [worker, status] : answers_) {
    for (auto const& send : status.awaited) {
      text += "\n  message " + to_string(send.message) + " that worker " + to_string(worker) +
              " sent to worker " + to_string(send.from);
    }
  }
  return text +
         "\nThe result of such a call does not take part in the loss. Use it, make the call "
         "outside of the context or under NoGradGuard, or start a context for each pass";
}

}  // namespace distgrad
