#pragma once
#include <algorithm>

#include <distgrad/engine/engine_core.hpp>

namespace distgrad {

namespace detail {

inline std::shared_ptr<StreamOrder> shared_streams(std::shared_ptr<Host> const& host) {
  return host->streams() ? std::shared_ptr<StreamOrder>(host, host->streams()) : nullptr;
}

}  // namespace detail

DISTGRAD_DECL EngineCore::EngineCore(std::shared_ptr<Host> host, Membership membership,
                                     Options options)
    : ids_(membership.self().id, membership.self().incarnation),
      agent_(std::move(host), std::move(membership), options.rpc_timeout),
      contexts_(ids_, detail::shared_streams(agent_.shared_host())),
      recorder_(agent_, contexts_, ids_),
      rrefs_(std::make_shared<RRefTable>(agent_, ids_)),
      passes_(agent_, contexts_, recorder_, options.passes),
      barrier_(agent_.membership().self().id,
               static_cast<std::uint32_t>(agent_.membership().group().size())) {
  agent_.services().add(*rrefs_);
  recorder_.on_release([this](DistAutogradContext const& context) { on_release(context); });
  for (auto kind : {FrameKind::shutdown_ready, FrameKind::shutdown_check, FrameKind::shutdown_state,
                    FrameKind::shutdown_leave}) {
    agent_.dispatcher().on(kind,
                           [this](WorkerId from, Message m) { on_shutdown_message(from, m); });
  }
  agent_.dispatcher().on_peer_lost([this](WorkerId peer, error_code) {
    std::unique_lock lock(shutdown_mutex_);
    auto const sends = barrier_.peer_lost(peer);
    lock.unlock();
    carry_out(sends);
  });
}

DISTGRAD_DECL void EngineCore::on_release(DistAutogradContext const& context) {
  if (agent_.observer() && context_history_.wants(context.id(), agent_.host().clock().now())) {
    context_history_.add(describe_graph(context));
  }
  passes_.release(context.id());
}

DISTGRAD_DECL void EngineCore::on_loop(time_point now) {
  agent_.caller().expire(now);
  passes_.tick(now);
  std::unique_lock lock(shutdown_mutex_);
  auto const sends = barrier_.is_asked() ? barrier_.look(is_idle(), agent_.caller().begun())
                                         : std::vector<ShutdownBarrier::Send>();
  bool const left = barrier_.has_left() && left_;
  lock.unlock();
  carry_out(sends);
  if (left) left_->set_value();
}

DISTGRAD_DECL time_point EngineCore::next_turn() {
  return std::min(agent_.caller().plan_turn(), passes_.next_tick().value_or(time_point::max()));
}

DISTGRAD_DECL bool EngineCore::is_idle() const {
  return agent_.active() == 0 && rrefs_->is_quiet() && passes_.size() == 0;
}

DISTGRAD_DECL Future<void> EngineCore::leave() {
  std::unique_lock lock(shutdown_mutex_);
  if (!left_) left_.emplace(agent_.shared_host());
  if (closed_) give_up_leaving();
  auto const sends = barrier_.want_to_leave();
  lock.unlock();
  agent_.host().log().write(LogLevel::info, "engine", "shutdown began");
  carry_out(sends);
  agent_.host().wake();
  return left_->future();
}

DISTGRAD_DECL std::string EngineCore::describe_missing() {
  std::string text;
  std::lock_guard lock(shutdown_mutex_);
  for (auto const worker : barrier_.missing()) {
    text += (text.empty() ? "; still working: '" : ", '") + agent_.membership().name(worker) + "'";
  }
  if (!is_idle()) {
    text += "; this worker waits for " + std::to_string(agent_.caller().pending()) +
            " calls of its own and runs or answers others";
  }
  return text;
}

DISTGRAD_DECL void EngineCore::on_shutdown_message(WorkerId from, Message const& message) {
  Reader in(message.metadata);
  auto const round = in.number<std::uint64_t>();
  auto const calls = in.number<std::uint64_t>();
  if (!in.ok()) return;
  std::unique_lock lock(shutdown_mutex_);
  auto const sends = barrier_.on_message(from, message.kind, round, calls);
  lock.unlock();
  carry_out(sends);
}

DISTGRAD_DECL void EngineCore::carry_out(std::vector<ShutdownBarrier::Send> const& sends) {
  for (auto const& send : sends) {
    Writer out;
    out.number(send.round);
    out.number(send.calls);
    agent_.host().send(send.to, Message{.kind = send.kind, .metadata = out.take()});
  }
}

/// The lock is held.
DISTGRAD_DECL void EngineCore::give_up_leaving() {
  if (!left_) return;
  left_->set_error(std::make_exception_ptr(
      Error(errc::closed, "the engine was stopped before the whole group was done")));
}

DISTGRAD_DECL bool EngineCore::is_open() const {
  std::lock_guard lock(shutdown_mutex_);
  return !closed_;
}

DISTGRAD_DECL void EngineCore::close() {
  {
    std::lock_guard lock(shutdown_mutex_);
    closed_ = true;
    give_up_leaving();
  }
  passes_.close();
  agent_.caller().close();
  rrefs_->close();
}

}  // namespace distgrad
