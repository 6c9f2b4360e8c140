// References passed around: as arguments and results, inside containers and each other, between
// every combination of creator, sender, receiver and owner.

#include "rig.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace rref_sharing_tests {

using namespace distgrad;

namespace {

using Group = std::vector<Worker*>;

template <class Cluster>
Group group_of(Cluster& cluster) {
  Group group;
  for (auto& engine : cluster) group.push_back(engine.get());
  return group;
}

/// Whether nobody holds anything for anybody, now or within a generous bound.
bool all_hold_nothing(Group const& group) {
  return rig::eventually([&] {
    for (auto* worker : group) {
      auto const info = worker->debug_info();
      if (info.owned_rrefs + info.forks + info.pending_users != 0) return false;
    }
    return true;
  });
}

/// What a handler finds out about a reference it received.
struct Seen {
  int value = 0;
  int owner = -1;
  bool is_owner = false;
  bool is_confirmed = false;
  bool local_value_works = false;
};
Seen look_at(RRef<int> const& value) {
  Seen seen{value.to_here(), static_cast<int>(value.owner().id.value), value.is_owner(),
            value.is_confirmed(), false};
  seen.local_value_works = !rig::error_of([&] { value.local_value(); });
  return seen;
}
bool is_as_expected(Seen const& seen, int value, int at, int owner) {
  return seen.value == value && seen.owner == owner && seen.is_owner == (at == owner) &&
         seen.is_confirmed && seen.local_value_works == (at == owner);
}

int number_of(int value) { return value; }
/// What worker `at` has: its own value, or a user of somebody else's.
RRef<int> obtain(Worker& at, int owner, int value) {
  return at.rank() == owner ? at.make_rref(value) : at.remote<number_of>(owner, value);
}
RRef<int> obtain_here(int owner, int value) { return obtain(this_worker(), owner, value); }
RRef<int> same_reference(RRef<int> const& value) { return value; }
Seen pass_on(RRef<int> const& value, int to) { return this_worker().rpc_sync<look_at>(to, value); }
RRef<Seen> leave_at(RRef<int> const& value, int to) {
  return this_worker().remote<look_at>(to, value);
}

struct Bundle {
  RRef<int> one;
  std::vector<RRef<int>> many;
  std::map<std::string, std::pair<int, RRef<int>>> named;
  std::optional<RRef<int>> perhaps;
};
int sum_of_bundle(Bundle const& bundle) {
  int sum = bundle.one.to_here();
  bool confirmed = bundle.one.is_confirmed();
  for (auto const& each : bundle.many) {
    sum += each.to_here();
    confirmed &= each.is_confirmed();
  }
  for (auto const& [name, each] : bundle.named) sum += each.first * each.second.to_here();
  if (bundle.perhaps) sum += bundle.perhaps->to_here();
  return confirmed ? sum : -1;
}
Bundle make_bundle(int owner) {
  auto& self = this_worker();
  return {obtain(self, owner, 1),
          {obtain(self, owner, 10), obtain(self, 0, 100)},
          {{"twice", {2, obtain(self, 1, 1000)}}},
          obtain(self, owner, 10000)};
}

RRef<RRef<int>> reference_to_reference(int outer, int inner, int value) {
  return this_worker().remote<obtain_here>(outer, inner, value);
}

template <int Depth>
struct ChainOf {
  using Type = RRef<typename ChainOf<Depth - 1>::Type>;
};
template <>
struct ChainOf<0> {
  using Type = int;
};
/// Passes the reference on to the next worker, `Hops` times; every hop returns a reference to what
/// the next one returned.
template <int Hops>
typename ChainOf<Hops>::Type hop(RRef<int> const& value) {
  auto& self = this_worker();
  if constexpr (Hops == 0) {
    return value.to_here();
  } else {
    auto const next = (self.rank() + 1) % static_cast<int>(self.group().size());
    return self.remote<&hop<Hops - 1>>(next, value);
  }
}
int unwind(int value) { return value; }
template <class T>
int unwind(RRef<T> const& value) {
  return unwind(value.to_here());
}

/// Averages what all trainers send in one round, and answers all of them then.
class ParameterServer {
 public:
  explicit ParameterServer(int trainers) : state_(std::make_unique<State>(trainers)) {}

  Future<at::Tensor> average(at::Tensor const& gradient) const {
    std::lock_guard lock(state_->mutex);
    state_->sum = state_->sum.add(gradient);
    auto answer = state_->round->future();
    if (++state_->arrived == state_->trainers) {
      state_->round->set_value(state_->sum.div(state_->trainers));
      state_->start_round();
    }
    return answer;
  }

 private:
  struct State {
    explicit State(int n) : trainers(n) { start_round(); }
    void start_round() {
      arrived = 0;
      sum = at::zeros({3});
      round.emplace();
    }
    int const trainers;
    int arrived = 0;
    at::Tensor sum;
    std::optional<Promise<at::Tensor>> round;
    std::mutex mutex;
  };
  std::unique_ptr<State> state_;
};
ParameterServer start_server(int trainers) { return ParameterServer(trainers); }
Future<at::Tensor> average_at(RRef<ParameterServer> const& server, at::Tensor const& gradient) {
  return server.local_value().average(gradient);
}
/// Trains for some rounds. @return the sum of all averages.
at::Tensor train_with(RRef<ParameterServer> const& server, int rounds) {
  auto& self = this_worker();
  auto total = at::zeros({3});
  for (int i = 0; i < rounds; ++i) {
    auto const gradient = at::ones({3}).mul(self.rank() + i);
    total = total.add(i % 2 == 0 ? server.rpc_sync<&ParameterServer::average>(gradient)
                                 : self.rpc_sync<average_at>(server.owner(), server, gradient));
  }
  return total;
}

}  // namespace

TEST_CASE_TEMPLATE("[RPC-32][RPC-34] a reference works as an argument between any three workers",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  Group const group = group_of(cluster);
  for (int sender = 0; sender < 3; ++sender) {
    for (int receiver = 0; receiver < 3; ++receiver) {
      for (int owner = 0; owner < 3; ++owner) {
        CAPTURE(sender);
        CAPTURE(receiver);
        CAPTURE(owner);
        auto const value = 100 * sender + 10 * receiver + owner;
        Worker& self = *group[sender];
        // A reference used and confirmed, and one that travels before anybody knows it.
        auto const reference = obtain(self, owner, value);
        CHECK(reference.to_here() == value);
        CHECK(is_as_expected(self.rpc_sync<look_at>(receiver, reference), value, receiver, owner));
        CHECK(is_as_expected(self.rpc_sync<look_at>(receiver, obtain(self, owner, value)), value,
                             receiver, owner));
        CHECK(is_as_expected(self.remote<look_at>(receiver, reference).to_here(), value, receiver,
                             owner));
        CHECK(is_as_expected(self.remote<look_at>(receiver, obtain(self, owner, value)).to_here(),
                             value, receiver, owner));
      }
    }
  }
  CHECK(all_hold_nothing(group));
}

TEST_CASE_TEMPLATE("[RPC-33][RPC-34] a reference works as a result between any three workers",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  Group const group = group_of(cluster);
  for (int caller = 0; caller < 3; ++caller) {
    for (int callee = 0; callee < 3; ++callee) {
      for (int owner = 0; owner < 3; ++owner) {
        CAPTURE(caller);
        CAPTURE(callee);
        CAPTURE(owner);
        auto const value = 100 * caller + 10 * callee + owner;
        Worker& self = *group[caller];
        auto const fresh = self.rpc_sync<obtain_here>(callee, owner, value);
        CHECK(fresh.to_here() == value);
        CHECK(fresh.is_owner() == (caller == owner));
        CHECK(fresh.owner().id.value == std::uint32_t(owner));
        auto const back = self.rpc_sync<same_reference>(callee, fresh);
        CHECK(back.to_here() == value);
        CHECK(back.id() == fresh.id());
      }
    }
  }
  CHECK(all_hold_nothing(group));
}

TEST_CASE_TEMPLATE("[RPC-32] a receiver passes a reference on to any worker", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  Group const group = group_of(cluster);
  for (int i = 0; i < 81; ++i) {
    int const sender = i % 3, receiver = i / 3 % 3, last = i / 9 % 3, owner = i / 27;
    CAPTURE(i);
    Worker& self = *group[sender];
    auto const seen = self.rpc_sync<pass_on>(receiver, obtain(self, owner, i), last);
    CHECK(is_as_expected(seen, i, last, owner));
    auto const left = self.rpc_sync<leave_at>(receiver, obtain(self, owner, i), last);
    CHECK(left.owner().id.value == std::uint32_t(last));
    CHECK(is_as_expected(left.to_here(), i, last, owner));
  }
  CHECK(all_hold_nothing(group));
}

TEST_CASE_TEMPLATE("[RPC-33] references travel inside containers and structures", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  Group const group = group_of(cluster);
  for (int i = 0; i < 27; ++i) {
    int const self = i % 3, peer = i / 3 % 3, owner = i / 9;
    CAPTURE(i);
    auto const bundle = group[self]->rpc_sync<make_bundle>(peer, owner);
    CHECK(sum_of_bundle(bundle) == 1 + 10 + 100 + 2 * 1000 + 10000);
    CHECK(group[self]->rpc_sync<sum_of_bundle>(peer, bundle) == 12111);
    auto const left = group[self]->remote<make_bundle>(peer, owner);
    CHECK(sum_of_bundle(left.to_here()) == 12111);
  }
  CHECK(all_hold_nothing(group));
}

TEST_CASE_TEMPLATE("[RPC-33] a reference may refer to a reference", Engine, DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  Group const group = group_of(cluster);
  for (int i = 0; i < 81; ++i) {
    int const self = i % 3, peer = i / 3 % 3, outer = i / 9 % 3, inner = i / 27;
    auto const nested = group[self]->rpc_sync<reference_to_reference>(peer, outer, inner, i);
    CHECK(nested.owner().id.value == std::uint32_t(outer));
    CHECK(nested.to_here().owner().id.value == std::uint32_t(inner));
    CHECK(nested.to_here().to_here() == i);
  }
  CHECK(all_hold_nothing(group));
}

TEST_CASE_TEMPLATE("[RPC-33] many nested references at the same time", Engine, DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  Group const group = group_of(cluster);
  {
    std::vector<RRef<RRef<int>>> nested;
    for (int i = 0; i < 60; ++i) {
      nested.push_back(group[0]->remote<obtain_here>(1 + i % 2, 2 - i % 2, i));
    }
    for (int i = 0; i < 60; ++i) CHECK(nested[i].to_here().to_here() == i);
  }
  CHECK(all_hold_nothing(group));
}

TEST_CASE_TEMPLATE("[RPC-33] a reference survives a chain of eight hops", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<4, Engine> cluster;
  Group const group = group_of(cluster);
  CHECK(unwind(group[0]->remote<&hop<8>>(1, obtain(*group[0], 0, 4))) == 4);
  CHECK(unwind(group[0]->remote<&hop<8>>(1, obtain(*group[0], 2, 5))) == 5);
  CHECK(all_hold_nothing(group));
}

TEST_CASE_TEMPLATE("[RPC-39] a local value is registered while others use it", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Group const group = group_of(cluster);
  Worker& owner = *group[0];
  {
    auto const local = owner.make_rref(5);
    CHECK(owner.debug_info().forks == 0);
    auto const user = owner.rpc_sync<leave_at>(1, local, 1);
    CHECK(user.to_here().value == 5);
    auto const held = owner.remote<same_reference>(1, local);
    CHECK(held.to_here().to_here() == 5);
    CHECK(owner.debug_info().owned_rrefs == 1);
    CHECK(rig::eventually([&] { return owner.debug_info().forks == 1; }));
  }
  CHECK(all_hold_nothing(group));
}

TEST_CASE_TEMPLATE("[RPC-33] a value outlives its creator's reference while another has one",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  Group const group = group_of(cluster);
  {
    RRef<RRef<int>> kept;
    {
      auto const mine = group[0]->remote<number_of>(1, 9);
      kept = group[0]->remote<same_reference>(2, mine);
    }
    CHECK(kept.to_here().to_here() == 9);
    auto const info = group[1]->debug_info();
    CHECK(info.owned_rrefs == 1);
  }
  CHECK(all_hold_nothing(group));
}

TEST_CASE_TEMPLATE("an engine refuses to send a reference that another engine holds", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Group const group = group_of(cluster);
  {
    auto const mine = group[0]->remote<number_of>(1, 3);
    auto const call = [&] { group[1]->rpc_sync<look_at>(0, mine); };
    CHECK(rig::error_of(call) == errc::invalid_argument);
    CHECK(rig::text_of(call).find("worker0") != std::string::npos);
  }
  CHECK(all_hold_nothing(group));
}

TEST_CASE_TEMPLATE("[RPC-42] trainers average their gradients through a shared object", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<4, Engine> cluster;
  Group const group = group_of(cluster);
  {
    auto const server = group[0]->remote<start_server>(0, 3);
    std::vector<Future<at::Tensor>> trainers;
    for (int rank = 1; rank < 4; ++rank) {
      trainers.push_back(group[0]->rpc_async<train_with>(rank, server, 6));
    }
    // Round i averages i + 1, i + 2 and i + 3.
    auto const expected = at::ones({3}).mul(2 + 3 + 4 + 5 + 6 + 7);
    for (auto const& trainer : trainers) CHECK(trainer.get().equal(expected));
  }
  CHECK(all_hold_nothing(group));
}

}  // namespace rref_sharing_tests
