// A worker dies without a word: who waits for it learns so at once, and the others go on.
#include "processes.hpp"

#include <condition_variable>
#include <mutex>

#include <ATen/ops/ones.h>

namespace {

using distgrad::condition;
using distgrad::this_worker;
using distgrad::Worker;
using namespace std::chrono_literals;

std::mutex mutex;
std::condition_variable changed;
int arrived = 0;

/// Called in this process by one that is about to stay where it is.
void arrive() {
  std::lock_guard lock(mutex);
  ++arrived;
  changed.notify_all();
}
bool wait_for_arrival() {
  std::unique_lock lock(mutex);
  bool const came = changed.wait_for(lock, 30s, [] { return arrived != 0; });
  arrived = 0;
  return came;
}

void stay_in(Worker& self) {
  self.rpc_sync<arrive>(0);
  std::mutex nobody;
  std::unique_lock lock(nobody);
  std::condition_variable().wait_for(lock, 10min, [] { return false; });
}
void stay_for_ever() { stay_in(this_worker()); }
void stay_at(int rank) { this_worker().rpc_sync<stay_for_ever>(rank); }
int add_one(int x) { return x + 1; }
at::Tensor scale(at::Tensor const& x, double by) { return x.mul(by); }
at::Tensor chain(at::Tensor const& x, int last) {
  auto& self = this_worker();
  if (self.rank() == last) return x.mul(2);
  return self.rpc_sync<chain>(self.rank() + 1, x, last).mul(2);
}
/// Its backward pass does not end.
at::Tensor scale_and_stay(at::Tensor const& x) {
  auto const y = x.mul(2);
  y.register_hook([&self = this_worker()](at::Tensor gradient) {
    stay_in(self);
    return gradient;
  });
  return y;
}

void check_others(Worker& self, std::string const& other) {
  CHECK(self.rpc_sync<add_one>(other, 1) == 2);
  auto const x = at::ones({2}).set_requires_grad(true);
  auto context = self.context();
  context.backward({self.rpc_sync<scale>(other, x, 3.0).sum()});
  CHECK(context.gradient(x).equal(at::ones({2}).mul(3)));
}

/// Checks that `f` fails because `worker` was lost.
template <class F>
void check_lost(F&& f, std::string const& worker) {
  try {
    f();
    FAIL_CHECK("nothing failed");
  } catch (distgrad::Error const& error) {
    CAPTURE(std::string(error.what()));
    CHECK(error.code() == condition::peer_lost);
    CHECK(std::string(error.what()).find("'" + worker + "'") != std::string::npos);
  }
}

void end(processes::Group& group, int survivor) {
  group.engine().shutdown(60s);
  CHECK(group.process(survivor).exit_code() == 0);
}

}  // namespace

TEST_CASE("[RPC-22] a call to a process that is killed fails with the worker's name") {
  processes::Group group(3, "serve");
  Worker& self = group.engine();
  auto const direct = self.rpc_async<stay_for_ever>("worker1");
  REQUIRE(wait_for_arrival());
  auto const value = self.remote<add_one>("worker1", 1);
  CHECK(value.to_here() == 2);

  group.process(1).kill();
  REQUIRE(direct.wait_for(30s));
  check_lost([&] { direct.get(); }, "worker1");
  check_lost([&] { self.rpc_sync<add_one>("worker1", 1); }, "worker1");
  CHECK_THROWS_AS(value.to_here(), distgrad::Error);
  check_others(self, "worker2");
  end(group, 2);
}

TEST_CASE("[RPC-22] a third worker's call to a process that is killed fails there") {
  processes::Group group(3, "serve");
  Worker& self = group.engine();
  auto const through = self.rpc_async<stay_at>("worker2", 1);
  REQUIRE(wait_for_arrival());
  group.process(1).kill();
  REQUIRE(through.wait_for(30s));
  check_lost([&] { through.get(); }, "worker1");
  CHECK_THROWS_AS(through.get(), distgrad::RemoteError);  // from worker2
  check_others(self, "worker2");
  end(group, 2);
}

TEST_CASE("a backward pass through a process that is killed fails, and later ones work") {
  processes::Group group(3, "serve");
  Worker& self = group.engine();
  {
    auto const x = at::ones({2}).set_requires_grad(true);
    auto context = self.context();
    auto const y = self.rpc_sync<scale>("worker2", x, 2.0);
    auto const loss = self.rpc_sync<scale_and_stay>("worker1", y).sum();
    std::thread killer([&] {
      if (wait_for_arrival()) group.process(1).kill();
    });
    check_lost([&] { context.backward({loss}); }, "worker1");
    killer.join();
    CHECK(self.debug_info().backward_passes == 0);
  }
  check_others(self, "worker2");
  end(group, 2);
}

TEST_CASE("[DA-41] a backward pass fails when half of the workers died before it") {
  processes::Group group(4, "serve");
  Worker& self = group.engine();
  {
    auto const x = at::ones({2}).set_requires_grad(true);
    auto context = self.context();
    auto root = self.rpc_sync<scale>("worker1", x, 2.0).sum();
    for (int rank : {2, 3}) root = root.add(self.rpc_sync<scale>(rank, x, 3.0).sum());
    for (int rank : {2, 3}) group.process(rank).kill();
    try {
      context.backward({root}, {.timeout = 30s});
      FAIL_CHECK("nothing failed");
    } catch (distgrad::Error const& error) {
      CHECK(error.code() == condition::peer_lost);
    }
    CHECK(self.debug_info().backward_passes == 0);
    CHECK_FALSE(context.gradient(x).defined());
  }
  check_others(self, "worker1");
  end(group, 1);
}

TEST_CASE("[DA-51] a backward pass fails when the last of three hops died") {
  for (auto mode : {distgrad::BackwardMode::smart, distgrad::BackwardMode::fast}) {
    processes::Group group(4, "serve");
    Worker& self = group.engine();
    {
      auto const x = at::ones({2}).set_requires_grad(true);
      auto context = self.context();
      auto const root = self.rpc_sync<chain>("worker1", x, 3).sum();
      group.process(3).kill();
      check_lost([&] { context.backward({root}, {.mode = mode, .timeout = 30s}); }, "worker3");
      CHECK(self.debug_info().backward_passes == 0);
      context.backward({self.rpc_sync<chain>("worker1", x, 2).sum()});  // a retry without it
      CHECK(context.gradient(x).equal(at::ones({2}).mul(4)));
    }
    check_others(self, "worker2");
    group.engine().shutdown(60s);
    for (int rank : {1, 2}) CHECK(group.process(rank).exit_code() == 0);
  }
}

TEST_CASE("a group ends although a process was killed while the others waited to leave") {
  processes::Group group(4, "serve");
  Worker& self = group.engine();
  for (int rank : {1, 2, 3}) CHECK(self.rpc_sync<add_one>(rank, 1) == 2);
  group.process(2).kill();
  group.engine().shutdown(60s);
  CHECK(group.process(1).exit_code() == 0);
  CHECK(group.process(3).exit_code() == 0);
}

TEST_CASE("workers whose rank 0 is killed do not wait for it") {
  // Rank 0 of the group under test is a process; its port comes through a pipe.
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  processes::Process counting("host", {std::to_string(pipe_ends[1])});
  std::uint16_t port = 0;
  pollfd readable{pipe_ends[0], POLLIN, 0};
  REQUIRE(::poll(&readable, 1, 30000) == 1);
  REQUIRE(::read(pipe_ends[0], &port, sizeof(port)) == sizeof(port));
  processes::Process other("serve", {"2", "3", std::to_string(port)});
  auto options = processes::options(1, 3);
  options.master_port = port;
  distgrad::TcpEngine self(options);
  for (int rank : {0, 2}) CHECK(self.rpc_sync<add_one>(rank, 1) == 2);
  auto const call = self.rpc_async<stay_for_ever>(0);
  counting.kill();
  REQUIRE(call.wait_for(30s));
  check_lost([&] { call.get(); }, "worker0");
  self.shutdown(60s);
  CHECK(other.exit_code() == 0);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

namespace {

/// Rank 0 of a group of three that tells the port through a pipe.
int host(processes::Arguments const& arguments) {
  auto options = processes::options(0, 3);
  options.rendezvous =
      distgrad::TcpRendezvous({.master_port = 0,
                               .job_secret = {},
                               .bind_address = {},
                               .on_listening = [&](std::uint16_t port) {
                                 if (::write(std::stoi(arguments.at(0)), &port, sizeof(port)) < 0)
                                   std::abort();
                               }});
  distgrad::TcpEngine engine(options);
  engine.shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return processes::run(argc, argv, {{"serve", processes::serve}, {"host", host}});
}
