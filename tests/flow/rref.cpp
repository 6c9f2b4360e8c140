// Remote values between a few workers: making them, reaching them, their errors and their end.
// tests/flow/rref_sharing.cpp passes references around.

#include "simulated.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <numeric>

namespace rref_tests {

using namespace distgrad;
using namespace std::chrono_literals;

namespace {

/// Holds remote functions back until a test opens it.
class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void shut() {
    std::lock_guard lock(mutex_);
    open_ = false;
  }
  bool pass() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 30s, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};
Gate gate;
struct OpenAtEnd {
  ~OpenAtEnd() { gate.open(); }
};

int sum_of(int a, int b) { return a + b; }
at::Tensor scaled_ones(int factor) { return rig::at_home(at::ones({2, 2}).mul(factor)); }
int slow_value(int value) { return gate.pass() ? value : -1; }
int failing_value(int code) {
  throw std::runtime_error("no value today, code " + std::to_string(code));
}

/// A value that cannot be copied or sent: only calls reach it.
class Tally {
 public:
  explicit Tally(int start) : count_(std::make_unique<std::atomic<int>>(start)) {}
  int add(int n) const { return *count_ += n; }
  int take(int n) { return *count_ -= n; }
  int take(int n) const { return *count_ - n; }  // would
  int fail(int n) const { throw std::out_of_range("counter refuses " + std::to_string(n)); }

 private:
  std::unique_ptr<std::atomic<int>> count_;
};
Tally make_counter(int start) { return Tally(start); }
Tally fail_to_make_counter(int) { throw std::runtime_error("no counter for you"); }

at::Tensor leaf_of_ones() { return scaled_ones(1).set_requires_grad(true); }
at::Tensor product_sum(at::Tensor const& x, RRef<at::Tensor> const& y) {
  return x.mul(y.local_value()).sum();
}
at::Tensor gradient_of_rref(RRef<at::Tensor> const& leaf) {
  auto& worker = this_worker();
  return worker.context_part(worker.current_context())->gradient(leaf.local_value());
}

/// Whether `worker` holds nothing for anybody, now or within a generous bound.
bool holds_nothing(Worker& worker) {
  return rig::eventually([&] {
    auto const info = worker.debug_info();
    return info.owned_rrefs == 0 && info.forks == 0 && info.pending_users == 0;
  });
}

bool are_all(at::Tensor const& values, int expected) {
  return values.defined() && values.cpu().equal(at::ones({2, 2}).mul(expected));
}

bool is_rref_failure(std::exception_ptr const& error, std::string const& worker) {
  try {
    std::rethrow_exception(error);
  } catch (RemoteError const& e) {
    CHECK(e.worker() == worker);
    CHECK(e.code() == errc::remote_exception);
    CHECK(e.remote_text() == "no value today, code 7");
    CHECK(e.function().find("failing_value") != std::string::npos);
    return true;
  } catch (...) {
    return false;
  }
}
template <class F>
std::exception_ptr thrown_by(F&& f) {
  try {
    f();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

TEST_CASE_TEMPLATE("[RPC-31] remote leaves a result on another worker or on oneself", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Worker& self = cluster[0];
  for (auto const& owner : {"worker1", "worker0"}) {
    {
      auto const number = self.remote<sum_of>(owner, 20, 22);
      CHECK(number.owner().name == owner);
      CHECK(number.is_owner() == (owner == self.name()));
      CHECK(number.to_here() == 42);
      CHECK(number.async_to_here().get() == 42);
      auto const tensor = self.remote<scaled_ones>(owner, 3);
      CHECK(are_all(tensor.to_here(), 3));
      // Every fetch is a copy of its own: changing one changes nobody else's value.
      if (!tensor.is_owner()) {
        tensor.to_here().mul_(2);
        CHECK(are_all(tensor.to_here(), 3));
      }
    }
    CHECK(holds_nothing(cluster[0]));
    CHECK(holds_nothing(cluster[1]));
  }
}

TEST_CASE_TEMPLATE("[RPC-31] many remote values are made at the same time", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Worker& self = cluster[0];
  {
    std::vector<RRef<int>> values;
    std::vector<Future<int>> fetched;
    for (int i = 0; i < 200; ++i) values.push_back(self.remote<sum_of>(i % 2, i, 1000));
    for (auto const& value : values) fetched.push_back(value.async_to_here());
    for (int i = 0; i < 200; ++i) {
      CHECK(values[i].to_here() == i + 1000);
      CHECK(fetched[i].get() == i + 1000);
    }
    CHECK(cluster[1].debug_info().owned_rrefs == 100);
  }
  CHECK(holds_nothing(cluster[0]));
  CHECK(holds_nothing(cluster[1]));
}

TEST_CASE_TEMPLATE("[RPC-35] local_value on a user says which reference it is and who owns it",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  auto const value = cluster[0].template remote<sum_of>("worker1", 1, 2);
  CHECK(rig::error_of([&] { value.local_value(); }) == errc::not_owner);
  auto const text = rig::text_of([&] { value.local_value(); });
  CHECK(text.find(to_string(value.id())) != std::string::npos);
  CHECK(text.find(to_string(value.handle().fork())) != std::string::npos);
  CHECK(text.find("'worker1'") != std::string::npos);
}

TEST_CASE_TEMPLATE("[RPC-35] a local reference gives the value itself, without forks", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<1, Engine> cluster;
  Worker& self = cluster[0];
  {
    auto const value = self.make_rref(std::string("here"));
    value.local_value() += " and now";
    auto const copy = value;
    CHECK(copy.to_here() == "here and now");
    CHECK(&copy.local_value() == &value.local_value());
    CHECK(value.is_confirmed());
    CHECK(self.debug_info().forks == 0);
  }
  CHECK(holds_nothing(self));
}

TEST_CASE_TEMPLATE("[RPC-35] owners are equal however a worker came to know them", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  auto const a = cluster[0].template remote<sum_of>("worker1", 1, 1);
  auto const b = cluster[0].template remote<sum_of>(1, 2, 2);
  auto const c = cluster[2].template remote<sum_of>("worker1", 3, 3);
  auto const other = cluster[0].template remote<sum_of>("worker2", 4, 4);
  CHECK(a.owner() == b.owner());
  CHECK(a.owner() == c.owner());
  CHECK(a.owner() == cluster[1].info());
  CHECK_FALSE(a.owner() == other.owner());
  std::set<RRefId> const ids{a.id(), b.id(), c.id(), other.id()};
  CHECK(ids.size() == 4);
  std::set<WorkerId> const owners{a.owner().id, b.owner().id, c.owner().id, other.owner().id};
  CHECK(owners.size() == 2);
}

TEST_CASE_TEMPLATE("[RPC-36] what the creating function threw arrives wherever the value is used",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Worker& self = cluster[0];
  auto const far = self.remote<failing_value>("worker1", 7);
  CHECK(is_rref_failure(thrown_by([&] { far.to_here(); }), "worker1"));
  CHECK(is_rref_failure(thrown_by([&] { far.async_to_here().get(); }), "worker1"));
  CHECK(is_rref_failure(thrown_by([&] { far.to_here(); }), "worker1"));  // and again
  auto const near = self.remote<failing_value>("worker0", 7);
  CHECK(is_rref_failure(thrown_by([&] { near.to_here(); }), "worker0"));
  CHECK(is_rref_failure(thrown_by([&] { near.local_value(); }), "worker0"));
  CHECK(is_rref_failure(thrown_by([&] { near.async_to_here().get(); }), "worker0"));

  for (auto const& owner : {"worker1", "worker0"}) {
    auto const counter = self.remote<fail_to_make_counter>(owner, 1);
    auto const text = rig::text_of([&] { counter.template rpc_sync<&Tally::add>(1); });
    CHECK(text.find("no counter for you") != std::string::npos);
    auto const derived = counter.template remote<&Tally::add>(1);
    CHECK(rig::text_of([&] { derived.to_here(); }).find("no counter for you") != std::string::npos);
  }
}

TEST_CASE_TEMPLATE("[RPC-36] a slow creation is waited for, but not longer than asked", Engine,
                   DISTGRAD_ENGINES) {
  OpenAtEnd at_end;
  rig::Cluster<2, Engine> cluster;
  for (auto const& owner : {"worker1", "worker0"}) {
    gate.shut();
    OpenAtEnd here;
    auto const value = cluster[0].template remote<slow_value>(owner, 5);
    auto const later = value.async_to_here();
    CHECK(rig::error_of([&] { value.to_here(20ms); }) == condition::timeout);
    CHECK_FALSE(later.is_ready());
    gate.open();
    CHECK(later.get() == 5);
    CHECK(value.to_here(30s) == 5);
    CHECK(value.to_here(0s) == 5);  // no limit
  }
}

TEST_CASE_TEMPLATE("[RPC-36] the owner finds out that it asks for a value of another type", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<1, Engine> cluster;
  auto const number = cluster[0].template remote<sum_of>(0, 1, 2);
  RRef<std::string> const wrong(number.shared_handle());
  CHECK(rig::error_of([&] { wrong.local_value(); }) == errc::invalid_argument);
  auto const text = rig::text_of([&] { wrong.to_here(); });
  CHECK(text.find("'int'") != std::string::npos);
  CHECK(text.find("string") != std::string::npos);
}

TEST_CASE_TEMPLATE("[RPC-31] functions of a value that cannot be sent run where it lives", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Worker& self = cluster[0];
  for (auto const& owner : {"worker1", "worker0"}) {
    auto const counter = self.remote<make_counter>(owner, 10);
    CHECK(counter.template rpc_sync<&Tally::add>(1) == 11);
    CHECK(counter.template rpc_async<&Tally::add>(2).get() == 13);
    CHECK(counter.template remote<&Tally::add>(3).to_here() == 16);
    CHECK(self.rpc_sync<&Tally::add>(owner, counter, 4) == 20);
    auto const text = rig::text_of([&] { counter.template rpc_sync<&Tally::fail>(9); });
    CHECK(text.find("counter refuses 9") != std::string::npos);
    CHECK(text.find("::{anonymous}::Tally::fail'") != std::string::npos);
    CHECK(counter.template rpc_sync<static_cast<int (Tally::*)(int) const>(&Tally::take)>(1) == 19);
    CHECK(counter.template rpc_sync<static_cast<int (Tally::*)(int)>(&Tally::take)>(1) == 19);
    CHECK(counter.template rpc_sync<&Tally::add>(0) == 19);
  }
  auto const far = self.remote<make_counter>("worker1", 0);
  CHECK(rig::error_of([&] { self.rpc_sync<&Tally::add>("worker0", far, 1); }) == errc::not_owner);
}

TEST_CASE_TEMPLATE("[RPC-39] debug_info counts a value while somebody refers to it", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Worker& user = cluster[0];
  Worker& owner = cluster[1];
  CHECK(owner.debug_info().owned_rrefs == 0);
  auto first = user.remote<sum_of>("worker1", 1, 1);
  auto second = user.remote<sum_of>("worker1", 2, 2);
  first.to_here();
  second.to_here();
  CHECK(owner.debug_info().owned_rrefs == 2);
  CHECK(owner.debug_info().forks == 2);
  CHECK(user.debug_info().owned_rrefs == 0);
  CHECK(rig::eventually([&] { return user.debug_info().pending_users == 0; }));
  first = {};
  CHECK(rig::eventually([&] { return owner.debug_info().owned_rrefs == 1; }));
  CHECK(second.to_here() == 4);
  second = {};
  CHECK(holds_nothing(owner));
  CHECK(holds_nothing(user));
}

TEST_CASE_TEMPLATE("[RPC-40] a value can be the root of a backward pass on its owner", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Worker& self = cluster[0];
  auto const x = leaf_of_ones();
  auto const y = self.remote<leaf_of_ones>("worker1");
  auto ctx = self.context();
  auto const root = self.make_rref(self.rpc_sync<product_sum>("worker1", x, y));
  ctx.backward({root.local_value()}, {.retain_graph = true});
  CHECK(are_all(ctx.gradient(x), 1));
  CHECK(are_all(self.rpc_sync<gradient_of_rref>("worker1", y), 1));
  ctx.backward({root.local_value()});  // adds up
  CHECK(are_all(ctx.gradient(x), 2));
  CHECK(are_all(self.rpc_sync<gradient_of_rref>("worker1", y), 2));
  CHECK_FALSE(x.grad().defined());

  auto const constant = self.make_rref(at::ones({}));
  CHECK(rig::error_of([&] { ctx.backward({constant.local_value()}); }) == errc::invalid_root);
  auto const matrix = self.make_rref(leaf_of_ones());
  CHECK(rig::error_of([&] { ctx.backward({matrix.local_value()}); }) == errc::invalid_root);
}

TEST_CASE_TEMPLATE("[RPC-40] without a context a value goes through ordinary autograd", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<1, Engine> cluster;
  auto const leaf = cluster[0].make_rref(leaf_of_ones());
  auto const root = cluster[0].make_rref(leaf.local_value().mul(3).sum());
  root.local_value().backward();
  CHECK(leaf.local_value().grad().equal(at::ones({2, 2}).mul(3)));
}

TEST_CASE_TEMPLATE("[RPC-41] a user's backward pass reaches the value's graph on its owner", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  Worker& self = cluster[0];
  auto const x = leaf_of_ones();
  auto const y = self.remote<leaf_of_ones>("worker1");
  auto ctx = self.context();
  auto const root = self.remote<product_sum>("worker1", x, y);
  auto const value = root.to_here();
  ctx.backward({value}, {.retain_graph = true});
  CHECK(are_all(ctx.gradient(x), 1));
  ctx.backward({value});
  CHECK(are_all(ctx.gradient(x), 2));
  CHECK(are_all(self.rpc_sync<gradient_of_rref>("worker1", y), 2));
}

TEST_CASE_TEMPLATE("[RPC-38] a reference may outlive its engine, and says so when used", Engine,
                   DISTGRAD_ENGINES) {
  RRef<int> far, near;
  RRef<Tally> counter;
  {
    rig::Cluster<2, Engine> cluster;
    far = cluster[0].template remote<sum_of>("worker1", 1, 2);
    near = cluster[0].make_rref(7);
    counter = cluster[0].template remote<make_counter>("worker1", 0);
    CHECK(far.to_here() == 3);
    CHECK(counter.template rpc_sync<&Tally::add>(1) == 1);
    cluster.shutdown();
    CHECK(rig::error_of([&] { far.to_here(); }) == condition::closed);
    CHECK(rig::error_of([&] { counter.template rpc_sync<&Tally::add>(1); }) == condition::closed);
  }
  CHECK(rig::error_of([&] { far.to_here(); }) == condition::closed);
  CHECK(rig::error_of([&] { far.async_to_here(); }) == condition::closed);
  CHECK(rig::error_of([&] { far.owner(); }) == condition::closed);
  CHECK(rig::error_of([&] { counter.template rpc_async<&Tally::add>(1); }) == condition::closed);
  CHECK(rig::error_of([&] { counter.template remote<&Tally::add>(1); }) == condition::closed);
  CHECK(near.local_value() == 7);  // the value is still ours
  CHECK(near.to_here() == 7);
}

TEST_CASE_TEMPLATE("engines may end while values and references are on their way", Engine,
                   DISTGRAD_ENGINES) {
  for (int round = 0; round < 20; ++round) {
    std::vector<RRef<int>> held;
    Future<int> fetched;
    {
      rig::Cluster<2, Engine> cluster;
      for (int i = 0; i < 10; ++i) {
        held.push_back(cluster[i % 2].template remote<sum_of>("worker1", i, round));
      }
      fetched = held.back().async_to_here();
      if (round % 2 == 0) held.clear();
    }
    CHECK(rig::eventually([&] { return fetched.is_ready(); }));
    for (auto const& value : held) {
      if (!value.is_owner()) CHECK(rig::error_of([&] { value.to_here(); }) == condition::closed);
    }
  }
}

TEST_CASE("a reference to nothing says so") {
  RRef<int> const nothing;
  CHECK_FALSE(nothing.is_valid());
  CHECK(rig::error_of([&] { nothing.to_here(); }) == errc::invalid_argument);
  CHECK(rig::error_of([&] { nothing.owner(); }) == errc::invalid_argument);
}

}  // namespace rref_tests
