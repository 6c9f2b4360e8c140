#pragma once
#include <utility>

#include <distgrad/rref/fork_protocol.hpp>

namespace distgrad {
namespace detail {

inline RRefAction rref_action(RRefAction::Kind kind, RRefId rref, ForkId fork, error_code error) {
  return {.kind = kind, .to = {}, .message = {}, .rref = rref, .fork = fork, .error = error};
}

inline RRefControl rref_control(FrameKind kind, RRefId rref, ForkId fork) {
  RRefControl message;
  message.kind = kind;
  message.rref = rref;
  message.fork = fork;
  return message;
}

}  // namespace detail

// ---- sending ----

DISTGRAD_DECL void ForkProtocol::send(WorkerId to, RRefControl message) {
  if (lost_.contains(to)) return;
  RRefAction action{};
  action.kind = RRefAction::Kind::send;
  action.to = to;
  action.message = channels_[to].number(message);
  actions_.push_back(action);
}

DISTGRAD_DECL void ForkProtocol::resend(WorkerId worker) {
  auto const found = channels_.find(worker);
  if (found == channels_.end()) return;
  auto const& unsettled = found->second.unsettled();
  for (auto const& [request, message] : unsettled) {
    if (message.kind == FrameKind::rref_create) continue;  // a call runs at most once
    RRefAction action{};
    action.kind = RRefAction::Kind::send;
    action.to = worker;
    action.message = message;
    action.message.settled = unsettled.begin()->first;
    actions_.push_back(action);
  }
}

// ---- making values ----

DISTGRAD_DECL void ForkProtocol::require_open(WorkerId peer, char const* what) const {
  if (shutting_down_)
    throw Error(errc::closed, std::string(what) + ": this worker is shutting down");
  if (lost_.contains(peer))
    throw Error(errc::peer_lost, std::string(what) + ": worker " + to_string(peer) +
                                     " was lost; use another, or wait until it joined again");
}

DISTGRAD_DECL void ForkProtocol::created_locally(RRefId rref) {
  auto& value = owned_[rref];
  value.created = true;
  ++value.handles;
}

DISTGRAD_DECL RRefControl ForkProtocol::remote_created(RRefId rref, ForkId fork, WorkerId owner) {
  require_open(owner, "creating a remote value");
  auto const message = detail::rref_control(FrameKind::rref_create, rref, fork);
  if (owner == self_) {
    auto& value = owned_[rref];
    ++value.handles;
    value.forks.emplace(fork, self_);  // keeps the value until its function has ended
    return message;
  }
  auto const numbered = channels_[owner].number(message);
  User user;
  user.rref = rref;
  user.owner = owner;
  user.parent = self_;
  user.create = numbered.request;
  user.owes_create = true;
  users_.emplace(fork, user);
  return numbered;
}

DISTGRAD_DECL void ForkProtocol::create_answered(RRefId rref, ForkId fork, error_code error) {
  auto const user = users_.find(fork);
  if (user == users_.end()) {
    if (fork.worker == self_) drop_fork(rref, fork);  // this worker is the owner
    return;
  }
  if (user->second.state != ForkState::pending) return;
  if (error) {
    fail(user, error);
    return;
  }
  channels_[user->second.owner].settle(user->second.create);
  user->second.owes_create = false;
  confirm(fork);
}

DISTGRAD_DECL CreateVerdict ForkProtocol::on_create(WorkerId from, RRefControl const& message) {
  if (lost_.contains(from)) return CreateVerdict::cancelled;
  auto const found = owned_.find(message.rref);
  bool const is_known = found != owned_.end() && found->second.created;
  bool const is_first = from == self_ ? found != owned_.end()  // remote_created has put it there
                                      : channels_[from].is_first(message.request, message.settled);
  if (!is_first || is_known) {
    bool const is_held = is_known && found->second.forks.contains(message.fork);
    return is_held ? CreateVerdict::duplicate : CreateVerdict::cancelled;
  }
  auto& value = owned_[message.rref];
  value.create = message.request;
  value.created = true;
  value.forks.emplace(message.fork, from);
  return CreateVerdict::run;
}

// ---- sharing ----

DISTGRAD_DECL ForkData ForkProtocol::share_as_owner(RRefId rref, ForkId child, WorkerId to) {
  require_open(to, "sharing an RRef");
  auto const found = owned_.find(rref);
  if (found == owned_.end())
    throw Error(errc::rref_deleted, "sharing RRef " + to_string(rref) + ": its value was freed");
  found->second.forks.emplace(child, to);  // before it travels: the receiver need not ask
  return {self_, rref, child, self_, found->second.create};
}

DISTGRAD_DECL ForkData ForkProtocol::share_as_user(ForkId fork, ForkId child, WorkerId to) {
  require_open(to, "sharing an RRef");
  auto const found = users_.find(fork);
  if (found == users_.end() || found->second.released)
    throw Error(errc::rref_deleted, "sharing reference " + to_string(fork) + ": it was released");
  auto& user = found->second;
  if (user.state == ForkState::failed)
    throw Error(user.error, "sharing RRef " + to_string(user.rref) + " of worker " +
                                to_string(user.owner) + ": the reference failed before");
  if (children_.emplace(child, Child{fork, to}).second) ++user.children;
  return {user.owner, user.rref, child, self_, user.create};
}

DISTGRAD_DECL void ForkProtocol::share_undelivered(ForkData const& data) {
  if (data.owner == self_)
    drop_fork(data.rref, data.fork);
  else
    child_accepted(data.fork);
}

DISTGRAD_DECL Received ForkProtocol::received(ForkData const& data) {
  if (data.owner == self_) return receive_as_owner(data);
  User user;
  user.rref = data.rref;
  user.owner = data.owner;
  user.parent = data.parent;
  user.create = data.create;
  user.released = shutting_down_;  // nobody will use it, but the protocol has to be kept
  auto const [place, is_new] = users_.emplace(data.fork, user);
  if (!is_new)
    throw Error(errc::bad_message, "reference " + to_string(data.fork) + " to RRef " +
                                       to_string(data.rref) + " arrived from worker " +
                                       to_string(data.parent) + " twice");
  auto& stored = place->second;
  if (lost_.contains(data.owner)) {
    stored.state = ForkState::failed;
    stored.error = errc::peer_lost;
  } else if (data.parent == data.owner) {
    stored.state = ForkState::confirmed;
  } else {
    auto request = detail::rref_control(FrameKind::rref_fork_request, data.rref, data.fork);
    request.create = data.create;
    send(data.owner, request);
  }
  Received const result{false, stored.state, stored.error};
  if (stored.state == ForkState::failed) accept_child(data.parent, data.fork, data.rref);
  let_go(place);
  return result;
}

DISTGRAD_DECL Received ForkProtocol::receive_as_owner(ForkData const& data) {
  Received result{true, ForkState::confirmed, {}};
  if (auto* const value = find_or_expect(data.rref, data.create)) {
    ++value->handles;
  } else {
    result.state = ForkState::failed;
    result.error = errc::rref_deleted;
  }
  if (data.parent == self_)
    drop_fork(data.rref, data.fork);  // registered when this worker sent it to itself
  else
    accept_child(data.parent, data.fork, data.rref);
  return result;
}

DISTGRAD_DECL void ForkProtocol::accept_child(WorkerId parent, ForkId child, RRefId rref) {
  if (parent == self_)
    child_accepted(child);
  else
    send(parent, detail::rref_control(FrameKind::rref_child_accept, rref, child));
}

DISTGRAD_DECL void ForkProtocol::child_accepted(ForkId child) {
  auto const found = children_.find(child);
  if (found == children_.end()) return;
  auto const parent = users_.find(found->second.parent);
  children_.erase(found);
  if (parent == users_.end()) return;
  --parent->second.children;
  let_go(parent);
}

// ---- how a user ends ----

DISTGRAD_DECL void ForkProtocol::confirm(ForkId fork) {
  auto const user = users_.find(fork);
  user->second.state = ForkState::confirmed;
  actions_.push_back(detail::rref_action(RRefAction::Kind::confirmed, user->second.rref, fork, {}));
  let_go(user);
}

DISTGRAD_DECL void ForkProtocol::fail(Users::iterator user, error_code error) {
  user->second.state = ForkState::failed;
  user->second.error = error;
  actions_.push_back(
      detail::rref_action(RRefAction::Kind::failed, user->second.rref, user->first, error));
  let_go(user);
}

// The one place where a user leaves the owner's books. A failed one leaves without being asked: its
// value may have been made all the same. @return true when the user was erased.
DISTGRAD_DECL bool ForkProtocol::let_go(Users::iterator place) {
  auto& user = place->second;
  if (user.state == ForkState::pending || user.children > 0) return false;
  if (!user.released && user.state != ForkState::failed) return false;
  if (!std::exchange(user.delete_sent, true)) {
    auto message = detail::rref_control(FrameKind::rref_user_delete, user.rref, place->first);
    if (std::exchange(user.owes_create, false)) message.create = user.create;
    send(user.owner, message);
  }
  if (user.released) users_.erase(place);
  return true;
}

DISTGRAD_DECL void ForkProtocol::release(ForkId fork) {
  auto const user = users_.find(fork);
  if (user == users_.end()) return;
  user->second.released = true;
  let_go(user);
}

// ---- how a value ends ----

DISTGRAD_DECL void ForkProtocol::release_owner(RRefId rref) {
  auto const value = owned_.find(rref);
  if (value == owned_.end() || value->second.handles == 0) return;
  --value->second.handles;
  free_if_unused(value);
}

DISTGRAD_DECL void ForkProtocol::drop_fork(RRefId rref, ForkId fork) {
  auto const value = owned_.find(rref);
  if (value == owned_.end() || value->second.forks.erase(fork) == 0) return;
  free_if_unused(value);
}

DISTGRAD_DECL void ForkProtocol::free_if_unused(Values::iterator value) {
  if (value->second.handles > 0 || !value->second.forks.empty()) return;
  actions_.push_back(detail::rref_action(RRefAction::Kind::value_freed, value->first, {}, {}));
  owned_.erase(value);
}

DISTGRAD_DECL void ForkProtocol::fail_placeholder(RRefId rref, Value& value, errc error) {
  if (value.created || std::exchange(value.failed, true)) return;
  actions_.push_back(detail::rref_action(RRefAction::Kind::value_failed, rref, {}, error));
}

DISTGRAD_DECL bool ForkProtocol::is_on_its_way(RRefId rref, std::uint64_t create) const {
  if (create == 0 || rref.worker == self_ || lost_.contains(rref.worker)) return false;
  auto const reborn = reborn_.find(rref.worker);
  if (reborn != reborn_.end() && reborn->second != rref.incarnation) return false;
  auto const channel = channels_.find(rref.worker);
  return channel == channels_.end() || !channel->second.is_done(create);
}

// A reference may overtake the create of its value.
DISTGRAD_DECL ForkProtocol::Value* ForkProtocol::find_or_expect(RRefId rref, std::uint64_t create) {
  auto const found = owned_.find(rref);
  if (found != owned_.end()) return &found->second;
  if (!is_on_its_way(rref, create)) return nullptr;
  auto& placeholder = owned_[rref];
  placeholder.create = create;
  return &placeholder;
}

// ---- what peers send ----

DISTGRAD_DECL bool ForkProtocol::on_control(WorkerId from, RRefControl const& message) {
  bool const is_request = message.kind == FrameKind::rref_fork_request ||
                          message.kind == FrameKind::rref_child_accept ||
                          message.kind == FrameKind::rref_user_delete;
  if (!is_request && message.kind != FrameKind::rref_ack) return false;
  if (lost_.contains(from)) return true;
  if (!is_request) {
    on_ack(from, message);
    return true;
  }
  bool const first = channels_[from].is_first(message.request, message.settled);
  RRefAction ack{};
  ack.kind = RRefAction::Kind::send;
  ack.to = from;
  ack.message = detail::rref_control(FrameKind::rref_ack, message.rref, message.fork);
  ack.message.request = message.request;
  if (first && message.kind == FrameKind::rref_child_accept) child_accepted(message.fork);
  if (first && message.kind == FrameKind::rref_user_delete) on_user_delete(from, message);
  if (message.kind == FrameKind::rref_fork_request) {
    auto const value = owned_.find(message.rref);
    bool const is_known = value != owned_.end() && value->second.forks.contains(message.fork);
    if (first) ack.message.error = register_fork(from, message);
    if (!first && !is_known) ack.message.error = errc::rref_deleted;
  }
  actions_.push_back(ack);
  return true;
}

DISTGRAD_DECL errc ForkProtocol::register_fork(WorkerId from, RRefControl const& message) {
  auto* const value = find_or_expect(message.rref, message.create);
  if (value == nullptr) return errc::rref_deleted;
  value->forks.emplace(message.fork, from);
  return {};
}

DISTGRAD_DECL void ForkProtocol::on_user_delete(WorkerId from, RRefControl const& message) {
  auto const value = owned_.find(message.rref);
  if (message.create != 0) {
    channels_[from].is_first(message.create, 0);
    if (value != owned_.end())
      fail_placeholder(message.rref, value->second, errc::rref_creation_failed);
  }
  if (value == owned_.end()) return;
  auto const fork = value->second.forks.find(message.fork);
  if (fork != value->second.forks.end() && fork->second == from)
    drop_fork(message.rref, message.fork);
}

DISTGRAD_DECL void ForkProtocol::on_ack(WorkerId from, RRefControl const& message) {
  auto const request = channels_[from].settle(message.request);
  if (request.kind != FrameKind::rref_fork_request) return;
  auto const user = users_.find(request.fork);
  if (user == users_.end() || user->second.state != ForkState::pending) return;
  auto const parent = user->second.parent;
  if (message.error == errc{})
    confirm(request.fork);
  else
    fail(user, message.error);
  accept_child(parent, request.fork, request.rref);
}

// ---- the group ----

DISTGRAD_DECL void ForkProtocol::peer_lost(WorkerId worker) {
  if (!lost_.insert(worker).second) return;
  channels_[worker].reset();
  for (auto place = owned_.begin(); place != owned_.end();) {
    auto const value = place++;
    std::erase_if(value->second.forks, [&](auto const& fork) { return fork.second == worker; });
    if (value->first.worker == worker)
      fail_placeholder(value->first, value->second, errc::peer_lost);
    free_if_unused(value);
  }
  auto const is_owned_by_lost = [&](ForkId fork) {
    auto const user = users_.find(fork);
    return user != users_.end() && user->second.owner == worker;
  };
  std::vector<ForkId> children;
  for (auto const& [child, link] : children_)
    if (link.to == worker || is_owned_by_lost(link.parent)) children.push_back(child);
  for (auto const child : children) child_accepted(child);
  for (auto place = users_.begin(); place != users_.end();) {
    auto const user = place++;
    if (user->second.owner != worker || user->second.state == ForkState::failed) continue;
    fail(user, errc::peer_lost);
  }
}

DISTGRAD_DECL void ForkProtocol::peer_joined(WorkerId worker, Incarnation incarnation) {
  lost_.erase(worker);
  reborn_[worker] = incarnation;
}

DISTGRAD_DECL std::vector<ForkId> ForkProtocol::begin_shutdown() {
  shutting_down_ = true;
  std::vector<ForkId> held;
  for (auto place = users_.begin(); place != users_.end();) {
    auto const user = place++;
    if (!std::exchange(user->second.released, true)) held.push_back(user->first);
    let_go(user);
  }
  return held;
}

}  // namespace distgrad
