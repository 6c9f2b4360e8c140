#pragma once
#include <distgrad/engine/pass.hpp>

namespace distgrad {

/// Sends what the protocol asked for; called without the lock.
DISTGRAD_DECL void Pass::carry_out(PassActions const& actions) {
  auto const with_status = [this](Writer& out) {
    std::lock_guard lock(mutex_);
    detail::write_status(out, status(0));
  };
  // Before anybody is told: whoever hears that the pass is over finds no trace of it here.
  if (actions.finished && on_finished_) std::exchange(on_finished_, nullptr)();
  for (auto const& discover : actions.discovery.discover) {
    send(discover.to, detail::discover_message(id_, options_, discover, outermost_id_));
  }
  for (auto const& discovered : actions.discovery.discovered) {
    send(discovered.to, detail::discovered_message(id_, discovered));
  }
  if (actions.send_done) send(id_.initiator, FrameKind::pass_done, with_status);
  if (actions.send_failed) {
    send(id_.initiator, FrameKind::pass_failed,
         [&](Writer& out) { write_error(out, *protocol_.error()); });
  }
  if (actions.send_committed) send(id_.initiator, FrameKind::pass_committed);
  for (auto const worker : actions.release) send(worker, FrameKind::pass_release);
  for (auto const worker : actions.commit) send(worker, FrameKind::pass_commit);
  for (auto const worker : actions.abort) send(worker, FrameKind::pass_abort);
  for (auto const worker : actions.aborted) send(worker, FrameKind::pass_aborted, with_status);
  for (auto const worker : actions.query) {
    send(worker, FrameKind::pass_query, [&](Writer& out) { out.number(actions.query_round); });
  }
  bool const may_wake =
      actions.finished || actions.stop || actions.discovery.finished || !actions.commit.empty();
  if (is_initiator() && may_wake) changed_.notify_all();
}

DISTGRAD_DECL void Pass::send(WorkerId to, FrameKind kind, unique_function<void(Writer&)> write) {
  Writer out;
  out.id(id_);
  if (write) write(out);
  send(to, Message{.kind = kind, .metadata = out.take()});
}

DISTGRAD_DECL void Pass::send(WorkerId to, Message message) {
  agent_.host().send(to, std::move(message), [weak = weak_from_this(), to](error_code why) {
    auto const self = why ? weak.lock() : nullptr;
    if (!self) return;
    if (why == condition::peer_lost || why == errc::closed) return self->on_peer_lost(to, why);
    self->fail({why,
                self->self_name(),
                {},
                {},
                "a message to worker '" + self->agent_.membership().name(to) +
                    "' could not be sent: " + why.message()});
  });
}

}  // namespace distgrad
