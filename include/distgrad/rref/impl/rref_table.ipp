#pragma once
#include <distgrad/rref/rref_table.hpp>

namespace distgrad {
namespace detail {

inline void write_control(Writer& out, RRefControl const& c) {
  out.id(c.rref);
  out.id(c.fork);
  out.number(c.request);
  out.number(c.settled);
  out.number(c.create);
  out.number(static_cast<std::int32_t>(c.error));
}

inline RRefControl read_control(Reader& in, FrameKind kind) {
  RRefControl c;
  c.kind = kind;
  c.rref = in.id<RRefId>();
  c.fork = in.id<ForkId>();
  c.request = in.number<std::uint64_t>();
  c.settled = in.number<std::uint64_t>();
  c.create = in.number<std::uint64_t>();
  c.error = static_cast<errc>(in.number<std::int32_t>());
  return c;
}

}  // namespace detail

DISTGRAD_DECL RRefHandle::~RRefHandle() { table_->drop(*this); }

/// What is left to do outside of the lock: messages to send, futures to complete, and values and
/// errors whose destruction may run user code.
struct RRefTable::Deeds {
  RpcAgent* agent = nullptr;
  std::vector<RRefAction> sends;
  std::vector<std::pair<std::shared_ptr<Promise<void>>, error_code>> settled;
  std::vector<std::pair<std::shared_ptr<OwnerRRef>, error_code>> failed_values;
  std::vector<std::shared_ptr<OwnerRRef>> freed;
};

DISTGRAD_DECL RRefTable::RRefTable(RpcAgent& agent, IdSource& ids)
    : agent_(&agent), engine_(agent), ids_(ids), protocol_(agent.membership().self().id) {
  auto& dispatcher = agent.dispatcher();
  dispatcher.on(FrameKind::rref_create,
                [this](WorkerId from, Message m) { on_create(from, std::move(m)); });
  dispatcher.on(FrameKind::rref_fetch,
                [this](WorkerId from, Message m) { on_fetch(from, std::move(m)); });
  for (auto kind : {FrameKind::rref_fork_request, FrameKind::rref_child_accept,
                    FrameKind::rref_user_delete, FrameKind::rref_ack}) {
    dispatcher.on(kind, [this](WorkerId from, Message m) { on_control(from, m); });
  }
  dispatcher.on_peer_lost([this](WorkerId peer, error_code) { on_peer_lost(peer); });
}

template <class Decide>
auto RRefTable::with_protocol(Decide&& decide) {
  std::unique_lock lock(mutex_);
  if constexpr (std::is_void_v<decltype(decide())>) {
    decide();
    auto deeds = take_deeds();
    lock.unlock();
    carry_out(std::move(deeds));
  } else {
    auto result = decide();
    auto deeds = take_deeds();
    lock.unlock();
    carry_out(std::move(deeds));
    return result;
  }
}

DISTGRAD_DECL RRefTable::Deeds RRefTable::take_deeds() {
  Deeds deeds{.agent = agent_, .sends = {}, .settled = {}, .failed_values = {}, .freed = {}};
  for (auto& action : protocol_.take_actions()) {
    switch (action.kind) {
      case RRefAction::Kind::send: deeds.sends.push_back(std::move(action)); break;
      case RRefAction::Kind::confirmed:
      case RRefAction::Kind::failed:
        if (auto waiting = awaited_.extract(action.fork)) {
          for (auto& promise : waiting.mapped()) {
            deeds.settled.emplace_back(std::move(promise), action.error);
          }
        }
        break;
      case RRefAction::Kind::value_failed:
        deeds.failed_values.emplace_back(entry(action.rref), action.error);
        break;
      case RRefAction::Kind::value_freed:
        if (auto value = owned_.extract(action.rref)) deeds.freed.push_back(value.mapped());
        break;
    }
  }
  return deeds;
}

DISTGRAD_DECL void RRefTable::carry_out(Deeds deeds) {
  auto const failure = [](error_code code) {
    return std::make_exception_ptr(
        Error(code, "the remote value cannot be had: " + code.message()));
  };
  for (auto const& action : deeds.sends) {
    if (!deeds.agent) break;
    Writer out;
    detail::write_control(out, action.message);
    deeds.agent->host().send(action.to,
                             Message{.kind = action.message.kind, .metadata = out.take()});
  }
  for (auto& [promise, code] : deeds.settled) {
    code ? promise->set_error(failure(code)) : promise->set_value();
  }
  for (auto& [value, code] : deeds.failed_values) value->set_error(failure(code));
}

/// The entry of a value that is or will be here. The lock is held.
DISTGRAD_DECL std::shared_ptr<OwnerRRef> RRefTable::entry(RRefId id) {
  auto& value = owned_[id];
  if (!value) {
    value = agent_
                ? std::make_shared<OwnerRRef>(id, agent_->shared_host(), agent_->host().streams())
                : std::make_shared<OwnerRRef>(id, nullptr);
  }
  return value;
}

DISTGRAD_DECL void RRefTable::require_open() const {
  if (!agent_) throw Error(errc::closed, "the engine of this RRef was shut down");
}

DISTGRAD_DECL RpcAgent& RRefTable::agent() const {
  std::lock_guard lock(mutex_);
  require_open();
  return *agent_;
}

DISTGRAD_DECL RRefHandlePtr RRefTable::create(WorkerId owner, std::string_view function,
                                              std::optional<std::chrono::nanoseconds> timeout,
                                              unique_function<void(Draft&)> write) {
  auto& agent = this->agent();
  auto const id = ids_.next<RRefId>();
  auto const fork = ids_.next<ForkId>();
  bool const here = owner == agent.membership().self().id;
  RRefControl control;
  auto const local = with_protocol([&] {
    bounds::rrefs.require_room(references());
    control = protocol_.remote_created(id, fork, owner);
    return here ? entry(id) : nullptr;
  });
  auto handle =
      std::make_shared<RRefHandle>(shared_from_this(), owner, id, here ? ForkId{} : fork, local);
  auto settle = [table = shared_from_this(), id, fork](std::exception_ptr const& error) {
    auto report = error ? describe(error) : ErrorReport();
    table->with_protocol([&] {
      if (error) table->failures_[fork] = std::move(report.text);
      table->protocol_.create_answered(id, fork, report.code);
      if (table->protocol_.state(fork) != ForkState::failed) table->failures_.erase(fork);
    });
  };
  try {
    Draft draft(owner, agent.services());
    detail::write_control(draft.prefix(), control);
    write(draft);
    agent.send_call(FrameKind::rref_create, function, timeout, std::move(draft),
                    [settle](std::exception_ptr error, Decoder*) { settle(error); });
  } catch (...) {
    settle(std::current_exception());
    throw;
  }
  return handle;
}

DISTGRAD_DECL ForkData RRefTable::share(RRefHandle const& handle, WorkerId to) {
  require_usable(handle);
  return with_protocol([&] {
    auto const child = ids_.next<ForkId>();
    if (!handle.is_owner()) return protocol_.share_as_user(handle.fork(), child, to);
    auto data = protocol_.share_as_owner(handle.id(), child, to);
    owned_.try_emplace(handle.id(), handle.local());
    return data;
  });
}

DISTGRAD_DECL void RRefTable::share_undelivered(ForkData const& data) noexcept {
  try {
    with_protocol([&] { protocol_.share_undelivered(data); });
  } catch (...) {
    // Nobody waits for the undoing of a share; the loss of the peer would settle it, too.
  }
}

DISTGRAD_DECL RRefHandlePtr RRefTable::receive(ForkData const& data,
                                               std::optional<Future<void>>& confirmed) {
  auto& agent = this->agent();
  std::shared_ptr<OwnerRRef> local;
  auto const received = with_protocol([&] {
    auto r = protocol_.received(data);
    if (r.state == ForkState::failed && !r.owner) protocol_.release(data.fork);
    if (r.owner && r.state != ForkState::failed) {
      local = entry(data.rref);
    } else if (bounds::rrefs.most != 0 && references() > bounds::rrefs.most) {
      // It is here now, and goes with the call that is declined for it.
      Promise<void> declined(agent.shared_host());
      declined.set_error(std::make_exception_ptr(bounds::rrefs.exceeded()));
      confirmed = declined.future();
    } else if (!r.owner && r.state == ForkState::pending) {
      auto promise = std::make_shared<Promise<void>>(agent.shared_host());
      confirmed = promise->future();
      awaited_[data.fork].push_back(std::move(promise));
    }
    return r;
  });
  if (received.state == ForkState::failed) {
    throw Error(received.error, "the RRef that worker '" + agent.membership().name(data.parent) +
                                    "' passed on refers to a value that is gone");
  }
  auto const fork = received.owner ? ForkId{} : data.fork;
  return std::make_shared<RRefHandle>(shared_from_this(), data.owner, data.rref, fork, local);
}

DISTGRAD_DECL void RRefTable::fetch(RRefHandlePtr const& handle,
                                    std::optional<std::chrono::nanoseconds> timeout,
                                    OnResult on_result) {
  require_usable(*handle);
  auto& agent = this->agent();
  Draft draft(handle->owner(), agent.services());
  draft.prefix().id(handle->id());
  // The handle stays until the answer is here, so that the owner keeps the value.
  agent.send_call(FrameKind::rref_fetch, "RRef::to_here", timeout, std::move(draft),
                  [handle, on_result = std::move(on_result)](std::exception_ptr error,
                                                             Decoder* decoder) mutable {
                    on_result(std::move(error), decoder);
                  });
}

DISTGRAD_DECL void RRefTable::on_control(WorkerId from, Message const& message) {
  Reader in(message.metadata);
  auto const control = detail::read_control(in, message.kind);
  if (!in.ok()) return;
  with_protocol([&] { protocol_.on_control(from, control); });
}

DISTGRAD_DECL void RRefTable::on_peer_lost(WorkerId peer) {
  with_protocol([&] { protocol_.peer_lost(peer); });
}

DISTGRAD_DECL void RRefTable::require_usable(RRefHandle const& handle) const {
  std::lock_guard lock(mutex_);
  require_open();
  if (handle.is_owner() || protocol_.state(handle.fork()) != ForkState::failed) return;
  auto const why = failures_.find(handle.fork());
  throw Error(
      errc::rref_creation_failed,
      "RRef creation on worker '" + agent_->membership().name(handle.owner()) + "' failed: " +
          (why != failures_.end() ? why->second : protocol_.error(handle.fork()).message()));
}

DISTGRAD_DECL bool RRefTable::is_confirmed(RRefHandle const& handle) const {
  std::lock_guard lock(mutex_);
  return handle.is_owner() || protocol_.state(handle.fork()) == ForkState::confirmed;
}

DISTGRAD_DECL void RRefTable::drop(RRefHandle const& handle) noexcept {
  try {
    with_protocol([&] {
      if (!agent_) return;
      failures_.erase(handle.fork());
      handle.is_owner() ? protocol_.release_owner(handle.id()) : protocol_.release(handle.fork());
    });
  } catch (...) {
    // A destructor has nobody to tell; the owner learns of the loss when the connection ends.
  }
}

DISTGRAD_DECL bool RRefTable::is_quiet() const {
  std::lock_guard lock(mutex_);
  return protocol_.is_quiet();
}

DISTGRAD_DECL std::size_t RRefTable::owned() const {
  std::lock_guard lock(mutex_);
  return protocol_.owner_entries();
}

DISTGRAD_DECL std::size_t RRefTable::used() const {
  std::lock_guard lock(mutex_);
  return protocol_.users();
}

DISTGRAD_DECL std::size_t RRefTable::forks() const {
  std::lock_guard lock(mutex_);
  return protocol_.forks();
}

DISTGRAD_DECL std::size_t RRefTable::pending_users() const {
  std::lock_guard lock(mutex_);
  return protocol_.pending_users();
}

DISTGRAD_DECL void RRefTable::close() {
  decltype(owned_) values;
  decltype(awaited_) awaited;
  std::unique_lock lock(mutex_);
  agent_ = nullptr;
  values.swap(owned_);
  awaited.swap(awaited_);
  lock.unlock();
  // A value whose function is not done will not be made any more: nobody shall wait for it.
  auto const closed = std::make_exception_ptr(
      Error(errc::closed, "the engine was shut down before the value was made"));
  for (auto const& [id, value] : values) value->set_error(closed);
}

}  // namespace distgrad
