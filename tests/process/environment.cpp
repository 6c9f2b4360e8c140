// Workers that learn from their environment which group they belong to, as launchers start them.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <set>

#include "processes.hpp"

namespace {

using distgrad::errc;
using distgrad::TcpEngine;

std::string describe() {
  auto& self = distgrad::this_worker();
  return self.name() + " of " + std::to_string(self.group().size());
}
long process_id() { return ::getpid(); }

TcpEngine::Options quiet() {
  TcpEngine::Options options;
  options.transport.bind_address = "127.0.0.1";
  options.log = {};
  return options;
}

/// A port that nobody used a moment ago.
int free_port() {
  int const socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

processes::Environment environment(int rank, int world_size, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world_size)},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", std::to_string(port)},
          {"DISTGRAD_JOB_SECRET", "a job's secret"}};
}

constexpr int port_taken = 17;

/// Serves in the group of its environment. Rank 0 makes the calls.
int work(processes::Arguments const&) {
  try {
    auto engine = TcpEngine::from_environment(quiet());
    if (engine.rank() == 0) {
      std::set<long> ids;
      for (auto const& worker : engine.group()) {
        auto const expected = worker.name + " of " + std::to_string(engine.group().size());
        if (engine.rpc_sync<describe>(worker) != expected) return 1;
        ids.insert(engine.rpc_sync<process_id>(worker));
      }
      if (ids.size() != engine.group().size()) return 2;
    }
    engine.shutdown();
    return 0;
  } catch (distgrad::Error const& error) {
    if (error.code() == errc::address_in_use) return port_taken;
    throw;
  }
}

/// Exit code 0 if the environment is refused, and the text names the variable.
int be_refused(processes::Arguments const& arguments) {
  try {
    auto engine = TcpEngine::from_environment(quiet());
    return 1;
  } catch (distgrad::Error const& error) {
    bool const is_named = std::string(error.what()).find(arguments.at(0)) != std::string::npos;
    return error.code() == errc::invalid_argument && is_named ? 0 : 2;
  }
}

}  // namespace

TEST_CASE("processes find one another by the variables that launchers set") {
  constexpr int size = 3;
  std::vector<int> codes;
  do {  // once more if another program took the port meanwhile
    int const port = free_port();
    std::vector<processes::Process> workers;
    for (int rank = size - 1; rank >= 0; --rank) {
      workers.emplace_back("work", processes::Arguments{}, environment(rank, size, port));
    }
    codes.clear();
    codes.push_back(workers.back().exit_code());
    if (codes[0] == port_taken) continue;  // the others are ended
    for (int i = 0; i < size - 1; ++i) codes.push_back(workers[std::size_t(i)].exit_code());
  } while (codes[0] == port_taken);
  for (int code : codes) CHECK(code == 0);
}

TEST_CASE("a process alone needs no address") {
  processes::Process alone("work", {}, {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  CHECK(alone.exit_code() == 0);
}

TEST_CASE("an environment that makes no sense is refused with the variable's name") {
  auto const check = [](std::string const& name, std::string const& value) {
    CAPTURE(name);
    auto variables = environment(0, 2, 12345);
    variables[name] = value;
    processes::Process process("be_refused", {name}, variables);
    CHECK(process.exit_code() == 0);
  };
  check("RANK", "");
  check("RANK", "two");
  check("RANK", "2");
  check("WORLD_SIZE", "0");
  check("MASTER_ADDR", "");
  check("MASTER_PORT", "70000");
}

int main(int argc, char** argv) {
  return processes::run(argc, argv, {{"work", work}, {"be_refused", be_refused}});
}
