// Who is in a group, who may join, and what comes before and after one.
#include "ending.hpp"

#include <set>

#include <ATen/ops/ones.h>

namespace membership_tests {

namespace {
namespace membership_flow {

using namespace std::chrono_literals;
using distgrad::errc;
using distgrad::Error;
using distgrad::LoopbackEngine;
using distgrad::RRef;
using distgrad::TcpEngine;
using distgrad::TcpRendezvous;
using distgrad::Worker;
using distgrad::WorkerInfo;

int add_one(int x) { return x + 1; }
at::Tensor scale(at::Tensor const& x, double by) { return x.mul(by); }
std::string name_of(WorkerInfo const& worker) { return worker.name; }
WorkerInfo neighbour(WorkerInfo const& of) {
  auto& self = distgrad::this_worker();
  return self.find(int((of.id.value + 1) % self.group().size()));
}
std::vector<WorkerInfo> members() {
  auto const group = distgrad::this_worker().group();
  return {group.begin(), group.end()};
}
int value_through(RRef<int> const& value) { return value.to_here(); }

struct Start {
  std::string name;
  int rank = 0;
  int world_size = 2;
};

/// What became of starting these workers, all of one group, over TCP at a port that the kernel
/// chose.
struct Outcome {
  std::unique_ptr<TcpEngine> engine;
  distgrad::error_code code;
  std::string text;
};

TcpEngine::Options options_of(Start const& start, std::uint16_t port) {
  auto options = rig::options<TcpEngine>();
  options.name = start.name;
  options.rank = start.rank;
  options.world_size = start.world_size;
  options.master_port = port;
  return options;
}

Outcome start_engine(TcpEngine::Options const& options) {
  Outcome outcome;
  try {
    outcome.engine = std::make_unique<TcpEngine>(options);
  } catch (Error const& error) {
    outcome.code = error.code();
    outcome.text = error.what();
  }
  return outcome;
}

/// @param starts the first is the rank 0 that listens.
std::vector<Outcome> start_all(std::vector<Start> const& starts) {
  std::vector<Outcome> outcomes(starts.size());
  std::vector<std::thread> threads;
  auto host = options_of(starts[0], 0);
  host.rendezvous = TcpRendezvous(
      {.master_port = 0, .job_secret = {}, .bind_address = {}, .on_listening = [&](auto port) {
         for (std::size_t i = 1; i < starts.size(); ++i) {
           threads.emplace_back(
               [&, i, port] { outcomes[i] = start_engine(options_of(starts[i], port)); });
         }
       }});
  outcomes[0] = start_engine(host);
  for (auto& thread : threads) thread.join();
  return outcomes;
}

void check_infos(Worker& self, int rank, int world_size) {
  CHECK(self.rank() == rank);
  CHECK(self.name() == "worker" + std::to_string(rank));
  CHECK((self.find(self.name()) == self.info()));
  REQUIRE(self.group().size() == std::size_t(world_size));
  std::set<std::string> names;
  std::set<std::uint32_t> ids;
  for (auto const& worker : self.group()) {
    names.insert(worker.name);
    ids.insert(worker.id.value);
    CHECK((self.find(worker.name) == worker));
    CHECK((self.find(int(worker.id.value)) == worker));
    CHECK(worker.incarnation.value == self.find(worker.id).incarnation.value);
  }
  CHECK(names.size() == std::size_t(world_size));
  CHECK(ids.size() == std::size_t(world_size));
  CHECK(*ids.rbegin() == std::uint32_t(world_size - 1));
}

void check_unknown(Worker& self) {
  for (auto const& worker : {distgrad::WorkerRef("worker3"), distgrad::WorkerRef("Worker0"),
                             distgrad::WorkerRef(3), distgrad::WorkerRef(-1)}) {
    CHECK(rig::error_of([&] { self.find(worker); }) == errc::unknown_worker);
  }
  auto const text = rig::text_of([&] { self.find("worker3"); });
  for (auto const* name : {"worker3", "worker0", "worker1", "worker2"}) {
    CHECK(text.find(name) != text.npos);
  }
}

void check_info_travels(Worker& self) {
  CHECK(self.rpc_sync<name_of>(1, self.info()) == "worker0");
  CHECK((self.rpc_sync<neighbour>(1, self.find(2)) == self.find(0)));
  auto const seen = self.rpc_sync<members>(2);
  CHECK((seen == std::vector(self.group().begin(), self.group().end())));
  CHECK(self.rpc_sync<add_one>(self.rpc_sync<neighbour>(1, self.info()), 1) == 2);
}

void check_alone(Worker& self) {
  CHECK(self.rpc_sync<add_one>(0, 1) == 2);
  CHECK(self.rpc_async<add_one>(self.name(), 1).get() == 2);
  auto const value = self.remote<add_one>(self.info(), 1);
  CHECK(value.is_owner());
  CHECK(value.to_here() == 2);
  CHECK(self.rpc_sync<value_through>(0, value) == 2);
  auto const x = at::ones({2}).set_requires_grad(true);
  auto context = self.context();
  context.backward({self.rpc_sync<scale>(0, x, 3.0).sum()});
  CHECK(context.gradient(x).equal(at::ones({2}).mul(3)));
}

template <class Engine>
distgrad::error_code error_of_start(std::string const& name, int rank = 0, int world_size = 1) {
  auto options = rig::options<Engine>();
  options.name = name;
  options.rank = rank;
  options.world_size = world_size;
  options.rendezvous_timeout = 1ms;  // were it reached, the error would be another
  return rig::error_of([&] { Engine engine(options); });
}

void check_rref_without_engine(RRef<int> const& rref) {
  CHECK_FALSE(rref.is_valid());
  auto const check = [](auto&& use) {
    CHECK(rig::error_of(use) == errc::invalid_argument);
    CHECK(rig::text_of(use).find("refers to nothing") != std::string::npos);
  };
  check([&] { rref.to_here(); });
  check([&] { rref.local_value(); });
  check([&] { rref.owner(); });
  check([&] { rref.async_to_here(); });
}

}  // namespace membership_flow
}  // namespace

using namespace membership_flow;

TEST_CASE_TEMPLATE("[RPC-01] every worker knows itself and all others, by name and by rank", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  for (int rank = 0; rank < 3; ++rank) check_infos(cluster[rank], rank, 3);
  CHECK((cluster[0].info() == cluster[2].find("worker0")));
}

TEST_CASE_TEMPLATE("[RPC-01] a name or rank that is not in the group is an error with the names",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  check_unknown(cluster[1]);
}

TEST_CASE("[RPC-02] two workers of one name are refused, each with the reason") {
  for (auto const& starts : {std::vector<Start>{{"same", 0}, {"same", 1}},
                             std::vector<Start>{{"a", 0, 3}, {"same", 1, 3}, {"same", 2, 3}}}) {
    for (auto const& outcome : start_all(starts)) {
      CHECK_FALSE(outcome.engine);
      CHECK(outcome.code == errc::duplicate_name);
      CHECK(outcome.text.find("'same'") != std::string::npos);
    }
  }
}

TEST_CASE("workers that disagree about ranks or their number are refused, each with the reason") {
  for (auto const& outcome : start_all({{"a", 0, 3}, {"b", 1, 3}, {"c", 1, 3}})) {
    CHECK(outcome.code == errc::duplicate_rank);
    CHECK_FALSE(outcome.text.empty());
  }
  for (auto const& outcome : start_all({{"a", 0, 2}, {"b", 1, 3}})) {
    CHECK(outcome.code == errc::world_size_mismatch);
    CHECK(outcome.text.find("2") != std::string::npos);
    CHECK(outcome.text.find("3") != std::string::npos);
  }
}

TEST_CASE("[RPC-03] a second engine on a port in use is refused, and the first goes on") {
  TcpEngine::Options options = rig::options<TcpEngine>();
  TcpEngine first(options);
  distgrad::TcpTransport holder({.bind_address = "127.0.0.1", .port = 0, .advertise_address = {}});
  auto const text = holder.local_endpoint();
  auto const port = std::uint16_t(std::stoi(text.substr(text.rfind(':') + 1)));
  options.transport.port = port;
  CHECK(rig::error_of([&] { TcpEngine second(options); }) == errc::address_in_use);
  options.transport.port = 0;
  options.world_size = 2;
  options.master_port = port;  // the rendezvous's port
  auto const refuse = [&] { TcpEngine second(options); };
  CHECK(rig::error_of(refuse) == errc::address_in_use);
  CHECK(rig::text_of(refuse).find(std::to_string(port)) != std::string::npos);
  CHECK(first.rpc_sync<add_one>(0, 1) == 2);
}

TEST_CASE("[RPC-03] engines of several groups live in one process") {
  rig::Cluster<2, LoopbackEngine> memory;
  rig::Cluster<2, TcpEngine> sockets, more;
  CHECK(memory[0].rpc_sync<add_one>(1, 1) == 2);
  CHECK(sockets[0].rpc_sync<add_one>(1, 2) == 3);
  CHECK(more[1].rpc_sync<add_one>(0, 3) == 4);
  sockets.shutdown();
  CHECK(memory[0].rpc_sync<add_one>(1, 1) == 2);
  CHECK(more[1].rpc_sync<add_one>(0, 3) == 4);
}

TEST_CASE_TEMPLATE("[RPC-04] a group can end and meet again", Engine, DISTGRAD_ENGINES) {
  std::set<std::uint32_t> lives;
  for (int round = 0; round < 4; ++round) {
    rig::Cluster<2, Engine> cluster;
    lives.insert(cluster[0].info().incarnation.value);
    CHECK(cluster[0].template rpc_sync<add_one>(1, round) == round + 1);
    CHECK(cluster[1].template rpc_sync<add_one>(0, round) == round + 1);
    cluster.shutdown();
  }
  CHECK(lives.size() == 4);
}

TEST_CASE("[RPC-04] the same workers meet again at the same port") {
  std::uint16_t port = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<Outcome> outcomes(2);
    std::thread other;
    auto host = options_of({"a", 0}, 0);
    host.rendezvous = TcpRendezvous(
        {.master_port = port, .job_secret = {}, .bind_address = {}, .on_listening = [&](auto p) {
           port = p;
           other = std::thread([&] { outcomes[1] = start_engine(options_of({"b", 1}, port)); });
         }});
    outcomes[0] = start_engine(host);
    REQUIRE(other.joinable());
    other.join();
    REQUIRE(outcomes[0].engine);
    REQUIRE(outcomes[1].engine);
    CHECK(outcomes[0].engine->rpc_sync<add_one>("b", round) == round + 1);
    auto end = ending::in_background([&] { outcomes[1].engine->shutdown(); });
    outcomes[0].engine->shutdown();
    REQUIRE(ending::is_over(end));
  }
}

TEST_CASE_TEMPLATE("[RPC-05] names of other characters or lengths are refused", Engine,
                   DISTGRAD_ENGINES) {
  for (std::string const& name :
       {std::string("a b"), std::string("\n"), std::string(" "), std::string("a.b"),
        std::string("w\u00f6rker"), std::string("a\0b", 3), std::string(128, 'a')}) {
    CAPTURE(name);
    CHECK(error_of_start<Engine>(name) == errc::invalid_name);
  }
  for (std::string const& name : {std::string("A-z_0:9"), std::string(127, 'a')}) {
    CHECK_FALSE(error_of_start<Engine>(name));
  }
  // An empty name is filled in.
  auto const options = rig::options<Engine>();
  CHECK(Engine(options).name() == "worker0");
}

TEST_CASE_TEMPLATE("ranks outside the group are refused", Engine, DISTGRAD_ENGINES) {
  CHECK(error_of_start<Engine>("a", 1, 1) == errc::invalid_argument);
  CHECK(error_of_start<Engine>("a", -1, 1) == errc::invalid_argument);
  CHECK(error_of_start<Engine>("a", 0, 0) == errc::invalid_argument);
  CHECK(error_of_start<Engine>("a", 0, -2) == errc::invalid_argument);
}

TEST_CASE_TEMPLATE("[RPC-06] a WorkerInfo can be an argument, a result and a target", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<3, Engine> cluster;
  check_info_travels(cluster[0]);
}

TEST_CASE_TEMPLATE("[RPC-07] a group of one calls, shares and differentiates", Engine,
                   DISTGRAD_ENGINES) {
  auto options = rig::options<Engine>();
  options.name = "lonely";
  Engine engine(options);
  CHECK(engine.name() == "lonely");
  check_alone(engine);
  engine.shutdown();
}

TEST_CASE("[RPC-08] an RRef that no engine made says so when it is used") {
  check_rref_without_engine({});
  rig::Cluster<2, LoopbackEngine> cluster;
  Worker& self = cluster[0];
  CHECK(rig::error_of([&] { self.rpc_sync<value_through>(1, RRef<int>()); }) ==
        errc::invalid_argument);
  CHECK(self.debug_info().pending_calls == 0);
}

TEST_CASE_TEMPLATE("a worker whose group does not come together learns who is missing", Engine,
                   rig::TcpEngine) {
  auto options = rig::options<Engine>();
  options.world_size = 2;
  options.rendezvous_timeout = 50ms;
  options.rendezvous = TcpRendezvous(
      {.master_port = 0, .job_secret = {}, .bind_address = {}, .on_listening = [](auto) {}});
  auto const start = [&] { Engine engine(options); };
  CHECK(rig::error_of(start) == errc::timeout);
  CHECK(rig::text_of(start).find("1") != std::string::npos);
}

}  // namespace membership_tests
