// What does one blocking call cost, with a tensor there and back? What does an idle engine cost?
//
//   round_trip [--quick]
//
// One JSON line per row on stdout, a line for people on stderr.
#include <distgrad/distgrad.hpp>

#include "echo_peer.hpp"
#include "program.hpp"
#include "torch_peer.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>

namespace round_trip {

at::Tensor echo(at::Tensor x) { return x; }

}  // namespace round_trip

namespace {

constexpr std::size_t sizes_bytes[] = {4, 64 << 10, 1 << 20};

/// The rows' calls for any contestant with `echo(x)`.
template <class Echo>
std::vector<bench::Call> echo_calls(Echo echo) {
  std::vector<bench::Call> calls;
  for (std::size_t bytes : sizes_bytes) {
    auto const x = at::ones({static_cast<std::int64_t>(bytes / sizeof(float))});
    bench::require(echo(x).equal(x), "echo");
    calls.push_back([x, echo] { echo(x); });
  }
  return calls;
}

void run_distgrad(bench::Role const& role) {
  using Engine = distgrad::DistEngine<distgrad::TcpTransport, distgrad::CpuQueues>;
  Engine engine({.name = "w" + std::to_string(role.rank),
                 .rank = role.rank,
                 .world_size = 2,
                 .master_addr = "127.0.0.1",
                 .master_port = role.port});
  if (role.rank == 0)
    bench::serve_chunks(echo_calls(
        [&](at::Tensor const& x) { return engine.rpc_sync<round_trip::echo>("w1", x); }));
  engine.shutdown();
}

void run_torch(bench::Role const& role) {
  bench::TorchPeer peer(role.rank, role.port, 16);
  if (role.rank == 0)
    bench::serve_chunks(echo_calls([&](at::Tensor const& x) { return peer.echo(x); }));
}

void run_role(bench::Role const& role) {
  at::set_num_threads(1);
  if (role.contestant == "distgrad") return run_distgrad(role);
  if (role.contestant == "torch") return run_torch(role);
  std::vector<bench::EchoRow> rows;
  for (std::size_t bytes : sizes_bytes) rows.push_back({bytes, 1});
  bench::run_echo_role(role, rows);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program;
  program.name = "round_trip";
  program.run_role = run_role;
  program.measure_idle = true;
  program.rows = {{"4 B", "\"size_bytes\":4", 0.35},
                  {"64 KiB", "\"size_bytes\":65536"},
                  {"1 MiB", "\"size_bytes\":1048576"}};
  bench::add_contestants(program, {"distgrad"}, bench::TorchPeer::why_absent());
  return bench::run_program(program, argc, argv);
}
