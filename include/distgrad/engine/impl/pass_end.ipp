#pragma once
#include <distgrad/engine/pass.hpp>

namespace distgrad {
namespace detail {

/// How long the initiator of a failed pass waits for the others to stop.
inline constexpr std::chrono::seconds abort_grace{1};

}  // namespace detail

// --- a pass for one node -------------------------------------------------------------------------

DISTGRAD_DECL Pass* Pass::running(Node const& node) {
  auto* const pass = detail::running_pass();
  // The node may as well be in a graph that libtorch's engine runs for a node of this pass.
  return pass && pass->executor_.current_node() == &node ? pass : nullptr;
}

DISTGRAD_DECL std::chrono::nanoseconds Pass::time_left() const {
  if (deadline_.is_never()) return std::chrono::nanoseconds(0);
  return std::max(deadline_.at - agent_.host().clock().now(), Clock::duration(1));
}

DISTGRAD_DECL void Pass::belong_to(PassId const& id, std::shared_ptr<Pass> const& outermost) {
  std::lock_guard lock(mutex_);
  if (outermost_id_ != id_) return;  // it knows already, or began the nested pass itself
  outermost_id_ = id;
  if (publishes()) return;
  if (!outermost && options_.commits_globally) {
    throw Error(errc::not_supported,
                "a function that runs again for its gradients called this worker, which has no "
                "other part in the pass and could not hold its gradients back until the commit; "
                "use GradientCommit::local");
  }
  outermost_ = outermost;
  if (outermost) executor_.keep_as(outermost->executor_);
}

DISTGRAD_DECL void Pass::adopt(GradientMap&& gradients) {
  std::lock_guard lock(mutex_);
  adopted_.merge(std::move(gradients), options_.create_graph, agent_.host().streams());
}

DISTGRAD_DECL void Pass::nest(NestedPass const& part) {
  outermost_id_ = part.outer->outermost_id_;
  executor_.keep_as(part.outer->executor_);
  for (auto const& end : part.ends) executor_.capture(end);
  std::lock_guard lock(part.outer->mutex_);
  if (!part.outer->protocol_.is_running()) {
    throw Error(errc::pass_aborted, "the pass was stopped");
  }
  part.outer->nested_ = weak_from_this();
}

DISTGRAD_DECL void Pass::finish_nested(NestedPass& part, GradientMap&& gradients) {
  for (auto const& end : part.ends) part.found.push_back(executor_.take_captured(*end));
  part.outer->executor_.add_gradients(std::move(gradients));
}

DISTGRAD_DECL void Pass::stop_nested() {
  std::unique_lock lock(mutex_);
  auto const nested = nested_.lock();
  lock.unlock();
  if (nested) nested->fail({errc::pass_aborted, self_name(), {}, {}, "the pass was stopped"});
}

// --- failure -------------------------------------------------------------------------------------

DISTGRAD_DECL void Pass::fail(WireError error) {
  handle([&] { return protocol_.failed(std::move(error)); });
}

DISTGRAD_DECL void Pass::on_failed(WorkerId from, WireError error) {
  handle([&] { return protocol_.failed(from, std::move(error)); });
}

DISTGRAD_DECL void Pass::fail_here(std::exception_ptr const& error) {
  auto report = describe(error, errc::pass_failed);
  fail({report.code, self_name(), executor_.current_node_name(), {}, std::move(report.text)});
}

DISTGRAD_DECL void Pass::fail_late() {
  fail({errc::timeout,
        self_name(),
        "backward",
        {},
        "the backward pass did not finish within BackwardOptions::timeout"});
}

DISTGRAD_DECL void Pass::on_peer_lost(WorkerId peer, error_code why) {
  WireError error{why,
                  self_name(),
                  {},
                  {},
                  "worker '" + agent_.membership().name(peer) +
                      "' was lost during the backward pass: " + why.message()};
  handle([&] { return protocol_.peer_lost(peer, std::move(error)); });
}

DISTGRAD_DECL void Pass::abandon(WireError error) {
  handle([&] { return protocol_.abandon(std::move(error)); });
}

DISTGRAD_DECL void Pass::on_abort(WorkerId from) {
  handle([&] { return protocol_.abort(from); });
}

DISTGRAD_DECL void Pass::on_aborted(WorkerId from, PassStatus last) {
  handle([&] { return protocol_.aborted(from, std::move(last)); });
}

/// At the initiator, when its own nodes are done or stopped: waits for what the others still do.
DISTGRAD_DECL void Pass::await_end() {
  handle([this] {
    driving_ = false;
    return protocol_.stopped();
  });
  auto const is_finished = [this] { return protocol_.is_finished(); };
  std::unique_lock lock(mutex_);
  bool const is_in_time = wait(lock, deadline_, [&] { return is_finished() || protocol_.error(); });
  lock.unlock();
  if (!is_in_time) fail_late();  // some did not commit
  lock.lock();
  auto const grace = Deadline::after(detail::abort_grace, agent_.host().clock().now());
  bool const all_stopped = wait(lock, grace, is_finished);
  lock.unlock();
  if (!all_stopped) abandon({});
}

/// Only at the end of the pass, when nothing of it changes any more.
DISTGRAD_DECL void Pass::throw_if_failed() const {
  if (!protocol_.error()) return;
  auto const& error = *protocol_.error();
  auto const text = error.text + "\n  in pass " + std::to_string(id_.sequence) + " of context " +
                    to_string(id_.context) + awaited_text();
  if (error.worker.empty()) throw Error(error.code, text);
  throw RemoteError(error.code, error.worker, error.function, error.call, text);
}

// --- what others may know ------------------------------------------------------------------------

/// The lock is held.
DISTGRAD_DECL PassStatus Pass::status(std::uint32_t round) const {
  auto status = protocol_.own_status(round);
  if (driving_) return status;  // the executor is in use, so the part is not idle
  status.is_idle = !has_work();
  if (was_driving_) status.node = executor_.last_node_name();
  for (auto* node : executor_.awaited_sends()) {
    auto const* send = static_cast<SendRpcBackward const*>(node);
    status.awaited.push_back({send->id(), send->to()});
  }
  return status;
}

DISTGRAD_DECL PassRecord Pass::record() const {
  std::lock_guard lock(mutex_);
  auto const counts = protocol_.own_status(0);
  return probe_.so_far(counts.sent, counts.received);
}

DISTGRAD_DECL void Pass::end_watch(error_code const& fallback) {
  bool const is_logged = agent_.host().log().wants(LogLevel::info);
  if (!probe_ && !is_logged) return;
  std::unique_lock lock(mutex_);
  auto const counts = protocol_.own_status(0);
  auto const error = protocol_.error().value_or(WireError{fallback, {}, {}, {}, {}});
  probe_.end(counts.sent, counts.received, error.code);
  lock.unlock();  // nobody knows what a sink does
  if (error.code && is_logged) log_failure(error);
}

DISTGRAD_DECL void Pass::log_failure(WireError const& error) const {
  agent_.host().log().write(LogLevel::info, "engine", "a backward pass failed",
                            {{"pass", to_string(id_)},
                             {"role", is_initiator() ? "initiator" : "participant"},
                             {"error", error_name(error.code)},
                             {"origin", error.worker},
                             {"node", error.function},
                             {"reason", error.text}});
}

DISTGRAD_DECL std::string Pass::awaited_text() const {
  constexpr std::size_t most_lines = 8;
  auto const name = [this](WorkerId worker) {
    return "worker '" + agent_.membership().name(worker) + "'";
  };
  std::vector<std::string> lines;
  auto words = protocol_.last_words();
  words.try_emplace(self(), status(0));
  for (auto const& [worker, status] : words) {
    if (!status.node.empty()) lines.push_back(name(worker) + " was running '" + status.node + "'");
    for (auto const& send : status.awaited) {
      lines.push_back(name(worker) + " waited for the gradients of message " +
                      to_string(send.message) + ", which it had sent to " + name(send.from));
    }
  }
  for (auto const worker : protocol_.unanswered()) {
    lines.push_back(name(worker) +
                    " did not say that it stopped; a node or a hook that does not "
                    "return may run there");
  }
  std::string text;
  for (std::size_t i = 0; i < lines.size() && i < most_lines; ++i) text += "\n  " + lines[i];
  if (lines.size() > most_lines) {
    text += "\n  and " + std::to_string(lines.size() - most_lines) + " more";
  }
  return text;
}

DISTGRAD_DECL void Pass::on_query(WorkerId from, std::uint32_t round) {
  std::unique_lock lock(mutex_);
  auto const answer = status(round);
  lock.unlock();
  send(from, FrameKind::pass_status, [&](Writer& out) { detail::write_status(out, answer); });
}

DISTGRAD_DECL void Pass::on_status(WorkerId from, PassStatus const& answer) {
  handle([&] { return protocol_.status(from, answer); });
}

DISTGRAD_DECL void Pass::tick() {
  if (options_.is_smart) return;  // what takes part is known: a standstill cannot be
  std::uint32_t round = 0;
  handle([&] {
    auto const actions = protocol_.tick();
    round = actions.query_round;
    return actions;
  });
  if (round != 0) handle([&] { return protocol_.status(self(), status(round)); });
}

}  // namespace distgrad
