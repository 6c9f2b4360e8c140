#pragma once
// What happens at a modelled worker: the shell around its protocol, in small.

#include "pass_nodes.hpp"

namespace pass_model {

inline WireError some_error() { return {errc::pass_failed, {}, {}, {}, {}}; }

inline void Part::add() { protocol_.emplace(id(), WorkerId{0}, rules_->options); }

/// With the counts of FAST mode, everything that was sent in the context is waited for.
inline void Part::join() {
  if (std::exchange(joined_, true) || (is_smart() && !is_overlapped())) return;
  std::vector<int> sends;
  for (auto const& pair : graph_->pairs) {
    if (graph_->nodes[pair.send].worker == self_) sends.push_back(pair.send);
  }
  expand(sends);
}

inline void Part::begin() {
  drives_ = true;
  join();
  auto const reached = expand(graph_->roots);
  if (is_smart() && !is_overlapped()) carry_out(protocol_->start(follow(reached)));
}

inline bool Part::can_start_discovery() const {
  return is_initiator() && is_overlapped() && is_smart() && protocol_ && protocol_->is_running() &&
         !protocol_->has_started();
}

inline void Part::start_discovery() { carry_out(protocol_->start(follow(mark(graph_->roots)))); }

inline void Part::post(Kind kind, WorkerId to, Message rest) {
  rest.kind = kind;
  rest.from = self_;
  rest.to = int(to.value);
  ++counts_[std::size_t(kind)];
  sent.push_back(std::move(rest));
}

inline void Part::carry_out(PassActions const& actions) {
  for (auto const& question : actions.discovery.discover) {
    post(Kind::discover, question.to, {{}, 0, 0, question.number, question.messages, {}});
  }
  for (auto const& answer : actions.discovery.discovered) {
    post(Kind::discovered, answer.to, {{}, 0, 0, answer.number, {}, answer.participants});
  }
  if (actions.retire) {
    retires_ = true;
    if (!is_initiator()) drives_ = true;
  }
  if (actions.send_done) {
    post(Kind::done, WorkerId{0}, {{}, 0, 0, 0, {}, protocol_->own_status(0).peers});
  }
  if (actions.send_failed) post(Kind::failed, WorkerId{0});
  if (actions.send_committed) post(Kind::committed, WorkerId{0});
  for (auto to : actions.release) post(Kind::release, to);
  for (auto to : actions.commit) post(Kind::commit, to);
  for (auto to : actions.abort) post(Kind::abort, to);
  for (auto to : actions.aborted) post(Kind::aborted, to);
  auto const stopped = actions.stop && !drives_ && protocol_ ? protocol_->stopped() : PassActions{};
  if (actions.finished) {
    over_ = is_initiator() || !released_;
    failed_ = protocol_->error().has_value();
    if (is_initiator() && !failed_) visible_ = true;
    found_ = is_overlapped() ? nodes_.marked : nodes_.expanded;
    active_ = protocol_->discovery().active();
    participants_ = protocol_->participants();
    protocol_.reset();
    nodes_ = {.ran = nodes_.ran, .waits = {}, .got = {}};
    inbox_.clear();
    ready_.clear();
    retires_ = false;
    if (is_initiator()) drives_ = false;  // a participant's driver still has to see it
  }
  if (actions.stop) carry_out(stopped);
}

inline void Part::fail() {
  if (protocol_) carry_out(protocol_->failed(some_error()));
}

inline void Part::release_context() {
  released_ = true;
  fail();
}

inline void Part::deliver(Message const& message) {
  WorkerId const from(std::uint32_t(message.from));
  switch (message.kind) {
    case Kind::discover: return on_discover(message);
    case Kind::gradient: return on_gradient(message);
    case Kind::lost:
      if (message.from == 0) over_ = true;  // nobody is left to end a pass
      if (protocol_) carry_out(protocol_->peer_lost(from, some_error()));
      return;
    case Kind::failed:
      if (protocol_) carry_out(protocol_->failed(from, some_error()));
      if (!protocol_) post(Kind::abort, from);
      return;
    case Kind::abort:
      if (!is_initiator() && !released_) over_ = true;
      if (!protocol_) return post(Kind::aborted, from);
      return carry_out(protocol_->abort(from));
    default: break;
  }
  if (!protocol_) return;
  switch (message.kind) {
    case Kind::discovered: return carry_out(protocol_->discovered(message.number, message.workers));
    case Kind::done:
      return carry_out(protocol_->done(from, {0, false, 0, 0, message.workers, {}, {}}));
    case Kind::release: return carry_out(protocol_->release());
    case Kind::commit:
      if (rules_->options.commits_globally) {
        require(complete_, "a commit came before the part was complete");
        visible_ = true;
      }
      return carry_out(protocol_->commit());
    case Kind::committed: return carry_out(protocol_->committed(from));
    case Kind::aborted: return carry_out(protocol_->aborted(from, {}));
    default: return;
  }
}

inline void Part::on_discover(Message const& message) {
  if (!protocol_) {
    if (over_ || is_initiator()) return;
    if (released_) return post(Kind::failed, WorkerId{0});
    add();
  }
  join();
  WorkerId const from(std::uint32_t(message.from));
  std::vector<int> sends;
  for (auto const& fresh : protocol_->discover(from, message.number, message.messages)) {
    sends.push_back(graph_->pairs[fresh.sequence - 1].send);
  }
  auto const reached = is_overlapped() ? mark(sends) : expand(sends);
  carry_out(protocol_->expanded(from, message.number, follow(reached)));
}

inline void Part::on_gradient(Message const& message) {
  if (!protocol_) {
    if (over_ || is_initiator()) return;
    if (released_ || (is_smart() && !is_overlapped())) return post(Kind::failed, WorkerId{0});
    add();
  }
  auto const pair = int(message.number);
  if (!protocol_->is_running() ||
      !protocol_->gradient_received(WorkerId(std::uint32_t(message.from)), graph_->id(pair))) {
    return;
  }
  join();
  inbox_.insert(std::ranges::lower_bound(inbox_, pair), pair);
  if (!is_initiator()) drives_ = true;
}

inline bool Part::can_run() const {
  if (!drives_) return false;
  if (!is_initiator()) return true;
  if (!protocol_) return false;
  if (!protocol_->is_running()) return true;
  bool const must_ask = is_smart() && !is_overlapped();
  if (must_ask && !protocol_->discovery().is_finished()) return false;
  return !has_begun_ || !inbox_.empty() || retires_;
}

inline void Part::run() {
  if (protocol_ && protocol_->is_running()) run_slice();
  if (is_initiator() && protocol_ && protocol_->is_running()) return;
  drives_ = false;
  if (protocol_) carry_out(protocol_->stopped());
}

inline std::string Part::print() const {
  Print out;
  out << self_ << over_ << released_ << joined_ << has_begun_ << drives_ << retires_ << complete_
      << visible_ << failed_ << found_ << active_ << participants_ << protocol_.has_value();
  out << nodes_.expanded << nodes_.marked << nodes_.ran << nodes_.injected << nodes_.retired
      << nodes_.waits << nodes_.got << inbox_ << ready_;
  if (rules_->counts) out << counts_;
  if (!protocol_) return out.text;
  pass_model::print(out, *protocol_);
  return out.text;
}

}  // namespace pass_model
