// The fork protocol when a worker is lost, and when one leaves.
#include <distgrad/rref/fork_protocol.hpp>

#include "fork_group.hpp"

namespace fork_loss_tests {

using namespace fork_group;

TEST_CASE("an owner drops the forks of a lost worker and keeps those of the others") {
  Group g;
  auto const made = g.create_confirmed();
  auto const data = g.at(user).share_as_user(made.fork, g.new_fork(user), third);
  g.at(third).received(data);
  g.run();
  g.at(owner).peer_lost(user);
  g.run();
  CHECK(g.at(owner).forks(made.rref) == std::vector{data.fork});
  g.at(owner).peer_lost(third);
  g.run();
  CHECK(g.is_freed(made.rref));
}

TEST_CASE("an owner drops a reference that was on its way to a lost worker") {
  Group g;
  RRefId const rref = g.new_rref(owner);
  g.at(owner).created_locally(rref);
  (void)g.at(owner).share_as_owner(rref, g.new_fork(owner), third);
  g.at(owner).release_owner(rref);
  g.run();
  CHECK_FALSE(g.is_freed(rref));
  g.at(owner).peer_lost(third);
  g.run();
  CHECK(g.is_freed(rref));
}

TEST_CASE("users of a lost owner's values fail, and nobody waits for it any more") {
  Group g;
  auto const confirmed = g.create_confirmed();
  (void)g.at(user).share_as_user(confirmed.fork, g.new_fork(user), third);
  RRefId const rref = g.new_rref(user);
  ForkId const pending = g.new_fork(user);
  (void)g.at(user).remote_created(rref, pending, owner);
  g.events.clear();
  g.at(user).peer_lost(owner);
  g.at(user).peer_lost(owner);
  g.run();
  for (auto const fork : {confirmed.fork, pending}) {
    CHECK(g.at(user).state(fork) == ForkState::failed);
    CHECK(g.at(user).error(fork) == errc::peer_lost);
    CHECK(thrown_by([&] { (void)g.at(user).share_as_user(fork, g.new_fork(user), third); }) ==
          errc::peer_lost);
  }
  CHECK(g.events.size() == 2);
  CHECK(g.sent.empty());
  CHECK(g.at(user).is_quiet());
  g.at(user).create_answered(rref, pending);
  CHECK(g.at(user).state(pending) == ForkState::failed);
  g.at(user).release(confirmed.fork);
  g.at(user).release(pending);
  CHECK(g.at(user).users() == 0);
}

TEST_CASE("a parent does not wait for a child on a lost worker") {
  Group g;
  auto const made = g.create_confirmed();
  (void)g.at(user).share_as_user(made.fork, g.new_fork(user), third);
  g.at(user).release(made.fork);
  g.run();
  CHECK_FALSE(g.is_freed(made.rref));
  g.at(user).peer_lost(third);
  g.run();
  CHECK(g.is_freed(made.rref));
}

TEST_CASE("a reference to a lost owner's value fails on arrival, and its parent may go") {
  Group g;
  auto const made = g.create_confirmed();
  auto const data = g.at(user).share_as_user(made.fork, g.new_fork(user), third);
  g.at(third).peer_lost(owner);
  auto const got = g.at(third).received(data);
  CHECK(got.state == ForkState::failed);
  CHECK(got.error == errc::peer_lost);
  g.run();
  CHECK(g.sent == Sent{FrameKind::rref_child_accept});
  CHECK(g.at(user).pending_children() == 0);
  g.at(third).release(data.fork);
  CHECK(g.at(third).users() == 0);
}

TEST_CASE("nothing is created on, shared with or heard from a lost worker") {
  Group g;
  auto const made = g.create_confirmed();
  g.at(user).peer_lost(third);
  auto const rref = g.new_rref(user);
  CHECK(thrown_by([&] { (void)g.at(user).remote_created(rref, g.new_fork(user), third); }) ==
        errc::peer_lost);
  CHECK(thrown_by([&] { (void)g.at(user).share_as_user(made.fork, g.new_fork(user), third); }) ==
        errc::peer_lost);
  auto const before = g.at(user);
  RRefControl message;
  message.kind = FrameKind::rref_user_delete;
  message.request = 1;
  CHECK(g.at(user).on_control(third, message));
  message.kind = FrameKind::rref_create;
  CHECK(g.at(user).on_create(third, message) == CreateVerdict::cancelled);
  CHECK(g.at(user) == before);
}

TEST_CASE("a reference to a value that was freed is refused, and its parent may go") {
  Group g;
  auto const made = g.create_confirmed();
  auto const data = g.at(user).share_as_user(made.fork, g.new_fork(user), third);
  g.at(owner).peer_lost(user);  // and with it the fork that kept the value
  g.run();
  CHECK(g.is_freed(made.rref));
  CHECK(g.at(third).received(data).state == ForkState::pending);
  g.run();
  CHECK(g.at(third).state(data.fork) == ForkState::failed);
  CHECK(g.at(third).error(data.fork) == errc::rref_deleted);
  CHECK(g.count(Kind::failed, made.rref) == 1);
  CHECK(g.at(user).pending_children() == 0);
  CHECK(g.at(owner).owner_entries() == 0);
}

TEST_CASE("a value that was freed is not waited for, though its creator lives") {
  Group g;  // `user` makes it, `third` shares it with itself and the owner loses `third`
  auto const made = g.create_confirmed();
  auto const lent = g.at(user).share_as_user(made.fork, g.new_fork(user), third);
  g.at(third).received(lent);
  g.run();
  auto const data = g.at(third).share_as_user(lent.fork, g.new_fork(third), user);
  g.at(owner).peer_lost(third);
  g.at(user).release(made.fork);
  g.run();
  CHECK(g.is_freed(made.rref));
  g.at(user).received(data);
  g.run();
  CHECK(g.at(user).state(data.fork) == ForkState::failed);
  CHECK(g.at(user).error(data.fork) == errc::rref_deleted);
}

TEST_CASE("the owner hears when a reference comes home to a value that was freed") {
  Group g;
  auto const made = g.create_confirmed();
  auto const data = g.at(user).share_as_user(made.fork, g.new_fork(user), owner);
  g.at(owner).peer_lost(user);
  auto const got = g.at(owner).received(data);
  CHECK(got.owner);
  CHECK(got.state == ForkState::failed);
  CHECK(got.error == errc::rref_deleted);
  CHECK(g.at(owner).owner_entries() == 0);
}

TEST_CASE("a worker that took a lost one's place is heard, and what the old one made is refused") {
  Group g;
  auto const old = g.create_confirmed();
  auto const data = g.at(user).share_as_user(old.fork, g.new_fork(user), third);
  g.at(owner).peer_lost(user);
  g.at(owner).peer_joined(user, Incarnation{10});
  g.at(third).received(data);
  g.collect();
  auto const request = std::get<RRefControl>(g.network.front());
  g.network.clear();
  for (int i = 0; i < 2; ++i) {  // the second time as a duplicate
    g.at(owner).on_control(third, request);
    auto const acks = g.at(owner).take_actions();
    CHECK(acks.back().message.error == errc::rref_deleted);
  }
  ForkProtocol reborn(user);
  IdSource ids(user, Incarnation{10});
  auto const rref = ids.next<RRefId>();
  auto const create = reborn.remote_created(rref, ids.next<ForkId>(), owner);
  CHECK(g.at(owner).on_create(user, create) == CreateVerdict::run);
}

TEST_CASE("shutdown releases every user and is quiet once its messages are answered") {
  Group g;
  auto const held = g.create_confirmed();
  auto const parent = g.create_confirmed();
  auto const data = g.at(user).share_as_user(parent.fork, g.new_fork(user), third);
  g.at(user).release(parent.fork);
  CHECK(g.at(user).begin_shutdown() == std::vector{held.fork});
  CHECK(g.at(user).begin_shutdown().empty());
  CHECK(g.at(user).state(held.fork) == ForkState::deleted);
  CHECK_FALSE(g.at(user).is_quiet());
  g.at(third).received(data);
  g.run();
  CHECK(g.at(user).is_quiet());
  CHECK(g.is_freed(held.rref));
  g.at(third).begin_shutdown();
  g.run();
  CHECK(g.is_freed(parent.rref));
  CHECK(g.is_empty());
}

TEST_CASE("a creation still on its way at shutdown is waited for and released") {
  Group g;
  RRefId const rref = g.new_rref(user);
  ForkId const fork = g.new_fork(user);
  auto const create = g.at(user).remote_created(rref, fork, owner);
  CHECK(g.at(user).begin_shutdown() == std::vector{fork});
  CHECK_FALSE(g.at(user).is_quiet());
  CHECK(g.at(owner).on_create(user, create) == CreateVerdict::run);
  g.at(user).create_answered(rref, fork);
  g.run();
  CHECK(g.is_freed(rref));
  CHECK(g.is_empty());
}

TEST_CASE("after shutdown began nothing is shared, and what arrives is let go at once") {
  Group g;
  auto const made = g.create_confirmed();
  auto const data = g.at(user).share_as_user(made.fork, g.new_fork(user), third);
  RRefId const local = g.new_rref(third);
  g.at(third).created_locally(local);
  g.at(third).begin_shutdown();
  CHECK(thrown_by([&] { (void)g.at(third).share_as_owner(local, g.new_fork(third), user); }) ==
        errc::closed);
  CHECK(thrown_by([&] {
          (void)g.at(third).remote_created(g.new_rref(third), g.new_fork(third), owner);
        }) == errc::closed);
  g.at(third).received(data);
  g.run();
  CHECK(g.at(third).users() == 0);
  CHECK(g.at(user).pending_children() == 0);
  CHECK(g.at(owner).forks(made.rref) == std::vector{made.fork});
  CHECK(g.at(third).handles(local) == 1);  // a local value needs no group
}

TEST_CASE("a thousand users dropped right before shutdown are all deleted") {
  Group g;
  std::vector<ForkId> forks;
  for (int i = 0; i < 1000; ++i) forks.push_back(g.create_confirmed().fork);
  for (auto const fork : forks) g.at(user).release(fork);
  g.at(user).begin_shutdown();
  CHECK(g.at(user).unacked() == 1000);
  g.run();
  CHECK(g.is_empty());
}

}  // namespace fork_loss_tests
