#pragma once
// Three workers with a fork protocol each, and a network that keeps the order of each pair.
#include <algorithm>
#include <deque>
#include <functional>
#include <tuple>
#include <vector>

#include <distgrad/rref/fork_protocol.hpp>

#include <doctest/doctest.h>

namespace fork_group {

using namespace distgrad;

inline constexpr WorkerId owner{0}, user{1}, third{2};

struct Group {
  std::vector<ForkProtocol> workers{ForkProtocol(owner), ForkProtocol(user), ForkProtocol(third)};
  std::vector<IdSource*> sources{&id_0, &id_1, &id_2};
  IdSource id_0{owner, Incarnation{9}}, id_1{user, Incarnation{9}}, id_2{third, Incarnation{9}};
  std::deque<std::tuple<WorkerId, WorkerId, RRefControl>> network;  // from, to
  std::vector<RRefAction> events;                                   // all but sends
  std::vector<FrameKind> sent;                                      // all but acks

  ForkProtocol& at(WorkerId w) { return workers[w.value]; }
  RRefId new_rref(WorkerId by) { return sources[by.value]->next<RRefId>(); }
  ForkId new_fork(WorkerId by) { return sources[by.value]->next<ForkId>(); }

  void collect() {
    for (std::uint32_t w = 0; w < 3; ++w) {
      for (auto const& action : workers[w].take_actions()) {
        if (action.kind != RRefAction::Kind::send) {
          events.push_back(action);
          continue;
        }
        network.emplace_back(WorkerId{w}, action.to, action.message);
        if (action.message.kind != FrameKind::rref_ack) sent.push_back(action.message.kind);
      }
    }
  }
  // Delivers everything, and what follows from it.
  void run() {
    for (collect(); !network.empty(); collect()) {
      auto const [from, to, message] = network.front();
      network.pop_front();
      CHECK(at(to).on_control(from, message));
    }
  }
  std::size_t count(RRefAction::Kind kind, RRefId rref) const {
    return static_cast<std::size_t>(std::count_if(
        events.begin(), events.end(), [&](auto& e) { return e.kind == kind && e.rref == rref; }));
  }
  bool is_freed(RRefId rref) const { return count(RRefAction::Kind::value_freed, rref) == 1; }
  bool is_empty() const {
    return std::ranges::all_of(workers, [](auto const& w) {
      return w.owner_entries() == 0 && w.users() == 0 && w.is_quiet();
    });
  }

  // `user` creates a value on `owner`, whose answer arrived.
  struct Reference {
    RRefId rref;
    ForkId fork;
  };
  Reference create_confirmed() {
    Reference const made{new_rref(user), new_fork(user)};
    auto const create = at(user).remote_created(made.rref, made.fork, owner);
    CHECK(at(owner).on_create(user, create) == CreateVerdict::run);
    at(user).create_answered(made.rref, made.fork);
    run();
    return made;
  }
};

inline errc thrown_by(std::function<void()> const& call) {
  try {
    call();
  } catch (Error const& error) {
    return static_cast<errc>(error.code().value());
  }
  return {};
}

using Kind = RRefAction::Kind;
using Sent = std::vector<FrameKind>;

}  // namespace fork_group
