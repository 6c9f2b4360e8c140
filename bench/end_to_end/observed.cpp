// What does it cost a worker to be observed?
//
//   observed [--quick]
//
// The same engine with a trace, with metrics, and with neither, twice: how far the two that do the
// same differ is what the other ratios may be wrong by. Rows: a blocking call with 4 bytes there
// and back; forward, backward and release of one multiplication at the other worker.
//
// One JSON line per row on stdout, a line for people on stderr.
#include <distgrad/distgrad.hpp>

#include "program.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>

namespace observed {

at::Tensor echo(at::Tensor x) { return x; }
at::Tensor mul(at::Tensor x, at::Tensor y) { return x.mul(y); }

}  // namespace observed

namespace {

std::vector<bench::Call> calls_of(distgrad::TcpEngine& engine) {
  auto const x = at::ones({1}).set_requires_grad(true);
  auto const y = x.detach();
  return {[=, &engine] {
            bench::require(engine.rpc_sync<observed::echo>("w1", y).numel() == 1, "echo");
          },
          [=, &engine] {
            auto context = engine.context();
            context.backward({engine.rpc_sync<observed::mul>("w1", x, y).sum()});
            bench::require(context.gradient(x).defined(), "gradient");
          }};
}

void run_role(bench::Role const& role) {
  at::set_num_threads(1);
  distgrad::TcpEngine::Options options{.name = "w" + std::to_string(role.rank),
                                       .rank = role.rank,
                                       .world_size = 2,
                                       .master_port = role.port};
  options.metrics = role.contestant == "metrics";
  options.trace_events = role.contestant == "trace" ? 10'000'000 : 0;  // none is dropped
  distgrad::TcpEngine engine(std::move(options));
  if (role.rank == 0) bench::serve_chunks(calls_of(engine));
  engine.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program;
  program.name = "observed";
  program.run_role = run_role;
  program.reference = "off";
  program.rows = {{"call, 4 B", "\"row\":\"call\"", 1.05},
                  {"forward and backward, 1 hop", "\"row\":\"backward\"", 1.05}};
  program.contestants = {"trace", "metrics", "off_again", "off"};
  program.own = program.contestants.size() - 1;
  return bench::run_program(program, argc, argv);
}
