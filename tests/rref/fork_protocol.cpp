#include <distgrad/rref/fork_protocol.hpp>

#include "fork_group.hpp"

namespace fork_protocol_tests {

using namespace fork_group;

TEST_CASE("a remote value lives from its creation to its only user's release") {
  Group g;
  RRefId const rref = g.new_rref(user);
  ForkId const fork = g.new_fork(user);
  auto const create = g.at(user).remote_created(rref, fork, owner);
  CHECK(create.kind == FrameKind::rref_create);
  CHECK(g.at(user).state(fork) == ForkState::pending);
  CHECK(g.at(user).pending_users() == 1);
  CHECK(g.at(owner).on_create(user, create) == CreateVerdict::run);
  CHECK(g.at(owner).forks(rref) == std::vector{fork});
  g.at(user).create_answered(rref, fork);
  CHECK(g.at(user).state(fork) == ForkState::confirmed);
  CHECK(g.at(user).is_quiet());
  g.at(user).release(fork);
  CHECK(g.at(user).state(fork) == ForkState::deleted);
  CHECK_FALSE(g.at(user).is_quiet());
  g.run();
  CHECK(g.count(Kind::confirmed, rref) == 1);
  CHECK(g.is_freed(rref));
  CHECK(g.sent == Sent{FrameKind::rref_user_delete});
  CHECK(g.is_empty());
}

TEST_CASE("a user released before it is confirmed stays until the owner knows it") {
  Group g;
  RRefId const rref = g.new_rref(user);
  ForkId const fork = g.new_fork(user);
  auto const create = g.at(user).remote_created(rref, fork, owner);
  g.at(user).release(fork);
  g.run();
  CHECK(g.sent.empty());
  CHECK(g.at(owner).on_create(user, create) == CreateVerdict::run);
  g.at(user).create_answered(rref, fork);
  g.run();
  CHECK(g.is_freed(rref));
  CHECK(g.is_empty());
}

TEST_CASE("a value remote to oneself lives until its function has ended and its handle is gone") {
  for (bool const is_released_first : {false, true}) {
    Group g;
    RRefId const rref = g.new_rref(owner);
    ForkId const fork = g.new_fork(owner);
    auto const create = g.at(owner).remote_created(rref, fork, owner);
    CHECK(create.request == 0);
    CHECK(g.at(owner).on_create(owner, create) == CreateVerdict::run);
    CHECK(g.at(owner).on_create(owner, create) == CreateVerdict::duplicate);
    if (is_released_first) g.at(owner).release_owner(rref);
    CHECK(g.at(owner).owner_entries() == 1);
    g.at(owner).create_answered(rref, fork);
    if (!is_released_first) {
      CHECK(g.at(owner).owner_entries() == 1);
      g.at(owner).release_owner(rref);
    }
    g.run();
    CHECK(g.is_freed(rref));
    CHECK(g.sent.empty());
    CHECK(g.at(owner).on_create(owner, create) == CreateVerdict::cancelled);
  }
}

TEST_CASE("a function remote to oneself runs though its handle went before") {
  ForkProtocol protocol(owner);
  RRefId const rref{owner, Incarnation{9}, 1};
  ForkId const fork{owner, Incarnation{9}, 2};
  auto const create = protocol.remote_created(rref, fork, owner);
  protocol.release_owner(rref);
  CHECK(protocol.on_create(owner, create) == CreateVerdict::run);
  protocol.create_answered(rref, fork);
  CHECK(protocol.owner_entries() == 0);
}

TEST_CASE("a local value nobody shares lives by its handles alone") {
  Group g;
  RRefId const rref = g.new_rref(owner);
  g.at(owner).created_locally(rref);
  CHECK(g.at(owner).forks() == 0);
  g.at(owner).release_owner(rref);
  g.at(owner).release_owner(rref);
  g.run();
  CHECK(g.is_freed(rref));
}

// Who shares with whom: the messages it costs before anybody lets go, and after.
TEST_CASE("[RPC-32] references pass between owner, user and third worker, and end with nothing") {
  struct Row {
    WorkerId from, to;
    Sent messages;
  };
  auto const fork_request = FrameKind::rref_fork_request;
  auto const child_accept = FrameKind::rref_child_accept;
  Row const rows[] = {
      {owner, owner, {}},                           // registered and dropped again
      {owner, user, {}},                            // registered before it travels
      {owner, third, {}},                           //
      {user, owner, {child_accept}},                // never registered
      {user, user, {fork_request}},                 // parent and child on one worker
      {user, third, {fork_request, child_accept}},  //
      {third, owner, {child_accept}},               //
      {third, user, {fork_request, child_accept}},  //
      {third, third, {fork_request}},               //
  };
  for (auto const& row : rows) {
    CAPTURE(row.from);
    CAPTURE(row.to);
    Group g;
    RRefId const rref = g.new_rref(owner);
    g.at(owner).created_locally(rref);
    ForkId source{};
    if (row.from != owner) {
      auto const data = g.at(owner).share_as_owner(rref, g.new_fork(owner), row.from);
      source = data.fork;
      CHECK(g.at(row.from).received(data).state == ForkState::confirmed);
    }
    ForkId const child = g.new_fork(row.from);
    auto const data = row.from == owner ? g.at(owner).share_as_owner(rref, child, row.to)
                                        : g.at(row.from).share_as_user(source, child, row.to);
    CHECK(data.parent == row.from);
    auto const got = g.at(row.to).received(data);
    CHECK(got.owner == (row.to == owner));
    bool const asks = row.from != owner && row.to != owner;
    CHECK(got.state == (asks ? ForkState::pending : ForkState::confirmed));
    g.run();
    CHECK(g.sent == row.messages);
    CHECK((got.owner || g.at(row.to).state(child) == ForkState::confirmed));
    CHECK(std::ranges::all_of(g.workers, [](auto& w) { return w.is_quiet(); }));
    CHECK(g.at(owner).handles(rref) == (got.owner ? 2 : 1));
    CHECK(g.at(owner).forks(rref).size() == (row.from != owner) + (row.to != owner));
    if (row.from != owner) g.at(row.from).release(source);
    got.owner ? g.at(owner).release_owner(rref) : g.at(row.to).release(child);
    g.at(owner).release_owner(rref);
    g.run();
    CHECK(g.is_freed(rref));
    CHECK(g.is_empty());
  }
}

TEST_CASE("a parent is deleted only when its child is accepted, though both let go before") {
  Group g;
  auto const made = g.create_confirmed();
  auto const data = g.at(user).share_as_user(made.fork, g.new_fork(user), third);
  g.at(user).release(made.fork);
  g.run();
  CHECK(g.sent.empty());
  CHECK(g.at(user).pending_children() == 1);
  CHECK(g.at(third).received(data).state == ForkState::pending);
  g.at(third).release(data.fork);
  g.run();
  CHECK(g.sent.front() == FrameKind::rref_fork_request);
  CHECK(g.is_freed(made.rref));
  CHECK(g.is_empty());
}

TEST_CASE("a reference on its way home keeps the value for the owner") {
  Group g;
  auto const made = g.create_confirmed();
  auto const data = g.at(user).share_as_user(made.fork, g.new_fork(user), owner);
  g.at(user).release(made.fork);
  g.run();
  CHECK(g.at(owner).owner_entries() == 1);
  CHECK(g.at(owner).received(data).owner);
  g.run();
  CHECK(g.at(owner).forks() == 0);
  CHECK(g.at(owner).handles(made.rref) == 1);
  g.at(owner).release_owner(made.rref);
  g.run();
  CHECK(g.is_freed(made.rref));
}

TEST_CASE("a reference passed to and fro a thousand times is counted right") {
  Group g;
  RRefId const rref = g.new_rref(owner);
  g.at(owner).created_locally(rref);
  for (int i = 0; i < 1000; ++i) {
    auto const away = g.at(owner).share_as_owner(rref, g.new_fork(owner), user);
    g.at(user).received(away);
    auto const home = g.at(user).share_as_user(away.fork, g.new_fork(user), owner);
    g.at(user).release(away.fork);
    CHECK(g.at(owner).received(home).owner);
    g.at(owner).release_owner(rref);
    g.run();
  }
  CHECK(g.at(owner).handles(rref) == 1);
  CHECK(g.at(owner).forks() == 0);
  g.at(owner).release_owner(rref);
  g.run();
  CHECK(g.is_freed(rref));
  CHECK(g.is_empty());
}

TEST_CASE("memory does not grow with the number of references there were") {
  Group g;
  auto const cycle = [&] {
    auto const made = g.create_confirmed();
    auto const data = g.at(user).share_as_user(made.fork, g.new_fork(user), third);
    g.at(third).received(data);
    g.at(user).release(made.fork);
    g.at(third).release(data.fork);
    g.run();
  };
  for (int i = 0; i < 1000; ++i) cycle();
  CHECK(g.is_empty());
  for (auto const& worker : g.workers) CHECK(worker.text().size() < 200);
}

TEST_CASE("a creation that was given up is cancelled when its message arrives later") {
  Group g;
  RRefId const rref = g.new_rref(user);
  ForkId const fork = g.new_fork(user);
  auto const create = g.at(user).remote_created(rref, fork, owner);
  g.at(user).create_answered(rref, fork, errc::timeout);
  g.run();  // the delete overtakes the create
  CHECK(g.sent == Sent{FrameKind::rref_user_delete});
  CHECK(g.at(owner).on_create(user, create) == CreateVerdict::cancelled);
  CHECK(g.at(owner).owner_entries() == 0);
  CHECK(g.at(user).is_quiet());
}

TEST_CASE("a value whose creation was given up is freed when it was made all the same") {
  Group g;
  RRefId const rref = g.new_rref(user);
  ForkId const fork = g.new_fork(user);
  auto const create = g.at(user).remote_created(rref, fork, owner);
  CHECK(g.at(owner).on_create(user, create) == CreateVerdict::run);
  g.at(user).create_answered(rref, fork, errc::timeout);  // its handle is still alive
  g.run();
  CHECK(g.is_freed(rref));
}

TEST_CASE("every operation on a reference whose creation failed sees that error") {
  Group g;
  RRefId const rref = g.new_rref(user);
  ForkId const fork = g.new_fork(user);
  (void)g.at(user).remote_created(rref, fork, owner);
  g.at(user).create_answered(rref, fork, errc::timeout);
  g.at(user).create_answered(rref, fork);  // too late
  CHECK(g.at(user).state(fork) == ForkState::failed);
  CHECK(g.at(user).error(fork) == errc::timeout);
  for (auto const to : {owner, user, third})
    CHECK(thrown_by([&] { (void)g.at(user).share_as_user(fork, g.new_fork(user), to); }) ==
          errc::timeout);
  g.run();
  CHECK(g.count(Kind::failed, rref) == 1);
  g.at(user).release(fork);
  CHECK(thrown_by([&] { (void)g.at(user).share_as_user(fork, g.new_fork(user), third); }) ==
        errc::rref_deleted);
  g.run();
  CHECK(g.is_empty());
}

TEST_CASE("a fork request that overtakes the create waits for the value") {
  Group g;
  RRefId const rref = g.new_rref(user);
  ForkId const fork = g.new_fork(user);
  auto const create = g.at(user).remote_created(rref, fork, owner);
  auto const data = g.at(user).share_as_user(fork, g.new_fork(user), third);
  g.at(third).received(data);
  g.run();
  CHECK(g.at(third).state(data.fork) == ForkState::confirmed);
  CHECK(g.at(owner).on_create(user, create) == CreateVerdict::run);
  CHECK(g.at(owner).forks(rref).size() == 2);
}

TEST_CASE("whoever waits for a value hears when its creation is given up, or its creator lost") {
  for (bool const is_lost : {false, true}) {
    Group g;
    RRefId const rref = g.new_rref(user);
    ForkId const fork = g.new_fork(user);
    (void)g.at(user).remote_created(rref, fork, owner);
    auto const data = g.at(user).share_as_user(fork, g.new_fork(user), third);
    g.at(third).received(data);
    g.run();
    is_lost ? g.at(owner).peer_lost(user) : g.at(user).create_answered(rref, fork, errc::timeout);
    g.run();
    CHECK(g.count(Kind::value_failed, rref) == 1);
    g.at(third).release(data.fork);
    g.at(user).release(fork);
    g.collect();
    CHECK(g.at(third).users() == 0);
  }
}

TEST_CASE("a create that arrives twice runs once, also when the value is gone") {
  Group g;
  RRefId const rref = g.new_rref(user);
  ForkId const fork = g.new_fork(user);
  auto const create = g.at(user).remote_created(rref, fork, owner);
  CHECK(g.at(owner).on_create(user, create) == CreateVerdict::run);
  CHECK(g.at(owner).on_create(user, create) == CreateVerdict::duplicate);
  g.at(user).create_answered(rref, fork);
  g.at(user).release(fork);
  g.run();
  CHECK(g.at(owner).on_create(user, create) == CreateVerdict::cancelled);
  CHECK(g.at(owner).owner_entries() == 0);
}

TEST_CASE("what is sent again after a reconnect is recognised, and no create is") {
  Group g;
  auto const made = g.create_confirmed();
  auto const other = g.new_fork(user);
  (void)g.at(user).remote_created(g.new_rref(user), other, owner);
  g.at(user).release(made.fork);
  auto const first = g.at(user).take_actions();
  g.at(user).resend(owner);
  g.at(user).resend(third);
  auto const again = g.at(user).take_actions();
  REQUIRE(again.size() == 1);
  CHECK(again[0].message.kind == FrameKind::rref_user_delete);
  CHECK(again[0].message.request == first[0].message.request);
  CHECK(g.at(owner).on_control(user, again[0].message));
  CHECK(g.at(owner).on_control(user, first[0].message));
  auto const acks = g.at(owner).take_actions();
  CHECK(std::ranges::count(acks, Kind::value_freed, &RRefAction::kind) == 1);
  CHECK(std::ranges::count(acks, Kind::send, &RRefAction::kind) == 2);
}

TEST_CASE("messages of other kinds are not the protocol's") {
  ForkProtocol protocol(owner);
  RRefControl message;
  message.kind = FrameKind::gradient;
  CHECK_FALSE(protocol.on_control(user, message));
  CHECK(protocol == ForkProtocol(owner));
}

TEST_CASE("a worker cannot delete the reference of another") {
  Group g;
  auto const made = g.create_confirmed();
  RRefControl forged;
  forged.kind = FrameKind::rref_user_delete;
  forged.rref = made.rref;
  forged.fork = made.fork;
  forged.request = 1;
  CHECK(g.at(owner).on_control(third, forged));
  CHECK(g.at(owner).forks(made.rref) == std::vector{made.fork});
}

TEST_CASE("one reference cannot arrive twice") {
  Group g;
  auto const made = g.create_confirmed();
  auto const data = g.at(user).share_as_user(made.fork, g.new_fork(user), third);
  g.at(third).received(data);
  CHECK(thrown_by([&] { g.at(third).received(data); }) == errc::bad_message);
}

TEST_CASE("a share that never left its worker leaves nothing behind") {
  Group g;
  auto const made = g.create_confirmed();
  g.at(user).share_undelivered(g.at(user).share_as_user(made.fork, g.new_fork(user), third));
  g.at(user).release(made.fork);
  RRefId const rref = g.new_rref(owner);
  g.at(owner).created_locally(rref);
  g.at(owner).share_undelivered(g.at(owner).share_as_owner(rref, g.new_fork(owner), third));
  g.at(owner).release_owner(rref);
  g.run();
  CHECK(g.is_freed(made.rref));
  CHECK(g.is_freed(rref));
  CHECK(g.is_empty());
}

}  // namespace fork_protocol_tests
