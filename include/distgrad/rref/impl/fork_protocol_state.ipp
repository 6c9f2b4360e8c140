#pragma once
#include <algorithm>

#include <distgrad/rref/fork_protocol.hpp>

namespace distgrad {

DISTGRAD_DECL ForkState ForkProtocol::state(ForkId fork) const {
  auto const user = users_.find(fork);
  return user == users_.end() ? ForkState::deleted : user->second.state;
}

DISTGRAD_DECL error_code ForkProtocol::error(ForkId fork) const {
  auto const user = users_.find(fork);
  return user == users_.end() ? error_code{} : user->second.error;
}

DISTGRAD_DECL std::size_t ForkProtocol::handles(RRefId rref) const {
  auto const value = owned_.find(rref);
  return value == owned_.end() ? 0 : value->second.handles;
}

DISTGRAD_DECL std::vector<ForkId> ForkProtocol::forks(RRefId rref) const {
  std::vector<ForkId> result;
  if (auto const value = owned_.find(rref); value != owned_.end())
    for (auto const& [fork, holder] : value->second.forks) result.push_back(fork);
  return result;
}

DISTGRAD_DECL std::size_t ForkProtocol::forks() const {
  std::size_t count = 0;
  for (auto const& [rref, value] : owned_) count += value.forks.size();
  return count;
}

DISTGRAD_DECL std::size_t ForkProtocol::pending_users() const {
  auto const is_pending = [](auto const& user) { return user.second.state == ForkState::pending; };
  return static_cast<std::size_t>(std::count_if(users_.begin(), users_.end(), is_pending));
}

DISTGRAD_DECL std::size_t ForkProtocol::unacked() const {
  std::size_t count = 0;
  for (auto const& [peer, channel] : channels_) count += channel.unsettled().size();
  return count;
}

DISTGRAD_DECL std::string ForkProtocol::text() const {
  static constexpr char const* states[] = {"pending", "confirmed", "failed", "deleted"};
  std::string out = "worker " + to_string(self_) + (shutting_down_ ? ", shutting down\n" : "\n");
  for (auto const& [rref, value] : owned_) {
    out += "value " + to_string(rref) + (value.created ? "" : " placeholder") +
           (value.failed ? " failed" : "") + ", handles " + std::to_string(value.handles);
    for (auto const& [fork, holder] : value.forks)
      out += ", fork " + to_string(fork) + " on " + to_string(holder);
    out += '\n';
  }
  for (auto const& [fork, user] : users_)
    out += "user " + to_string(fork) + " of " + to_string(user.rref) + " on " +
           to_string(user.owner) + " " + states[static_cast<int>(user.state)] +
           (user.released ? " released" : "") + (user.delete_sent ? " delete sent" : "") +
           (user.owes_create ? " unanswered" : "") + ", create " + std::to_string(user.create) +
           ", error " + std::to_string(user.error.value()) + '\n';
  for (auto const& [child, link] : children_)
    out += "child " + to_string(child) + " of " + to_string(link.parent) + " at " +
           to_string(link.to) + '\n';
  for (auto const& [peer, channel] : channels_) {
    out += "peer " + to_string(peer) + (lost_.contains(peer) ? " lost" : "") + ", next " +
           std::to_string(channel.next()) + ", low " + std::to_string(channel.low()) + ", done";
    for (auto const request : channel.done()) out += " " + std::to_string(request);
    for (auto const& [request, message] : channel.unsettled())
      out += ", unacked " + std::to_string(request) + " kind " +
             std::to_string(static_cast<int>(message.kind)) + " fork " + to_string(message.fork);
    out += '\n';
  }
  return out;
}

}  // namespace distgrad
