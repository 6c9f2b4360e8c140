// What does it cost a worker to be observed?
//
//   observed [--quick]
//
// The same engine with a trace, with metrics, and with neither, twice: how far the two that do the
// same differ is what the other numbers may be wrong by. Rows: a blocking call with 4 bytes there
// and back; forward, backward and release of one multiplication at the other worker.
//
// First their time, each in two processes over TCP. Then the processor time of both workers, in one
// process on one core, over the loopback transport: what the machine's other work hardly changes.
//
// One JSON line per row on stdout, a line for people on stderr.
#include <distgrad/distgrad.hpp>

#include "../support/one_core.hpp"
#include "program.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>

namespace observed {

at::Tensor echo(at::Tensor x) { return x; }
at::Tensor mul(at::Tensor x, at::Tensor y) { return x.mul(y); }

}  // namespace observed

namespace {

constexpr char const* names[] = {"trace", "metrics", "off_again", "off"};
constexpr std::size_t ways = std::size(names), off = ways - 1;

template <class Options>
Options observe(std::string_view way, Options options) {
  options.metrics = way == "metrics";
  options.trace_events = way == "trace" ? 10'000'000 : 0;  // none is dropped
  return options;
}

std::vector<bench::Row> rows() {
  return {{"call, 4 B", "\"row\":\"call\"", 1.05},
          {"forward and backward, 1 hop", "\"row\":\"backward\"", 1.05}};
}

/// What worker 0 does for each row.
std::vector<bench::Call> calls_of(distgrad::Worker& worker) {
  auto const x = at::ones({1}).set_requires_grad(true);
  auto const y = x.detach();
  return {
      [=, &worker] { bench::require(worker.rpc_sync<observed::echo>(1, y).numel() == 1, "echo"); },
      [=, &worker] {
        auto context = worker.context();
        context.backward({worker.rpc_sync<observed::mul>(1, x, y).sum()});
        bench::require(context.gradient(x).defined(), "gradient");
      }};
}

void run_role(bench::Role const& role) {
  at::set_num_threads(1);
  distgrad::TcpEngine engine(observe<distgrad::TcpEngine::Options>(
      role.contestant, {.rank = role.rank, .world_size = 2, .master_port = role.port}));
  if (role.rank == 0) bench::serve_chunks(calls_of(engine));
  engine.shutdown();
}

double cpu_us(bench::Call const& call) {
  constexpr int repetitions = 100;
  double const before = bench::CpuUse::of(::getpid());
  for (int i = 0; i < repetitions; ++i) call();
  return (bench::CpuUse::of(::getpid()) - before) / repetitions;
}

using Round = std::array<double, ways>;

void print_cpu_row(bench::Row const& row, bench::Rounds<Round> const& rounds) {
  bench::JsonLine json("observed_cpu");
  json.add_fields(row.json_fields);
  std::string human = "processor time, " + row.label + ":";
  for (std::size_t i = 0; i < ways; ++i) {
    std::string const name = names[i];
    double const us = rounds.median_of([&](Round const& r) { return r[i]; });
    double const more = rounds.median_of([&](Round const& r) { return r[i] - r[off]; });
    json.add(name + "_us", us).add(name + "_more_us", more);
    human += "  " + name + " " + bench::number(us) + " us";
    if (i != off) human += " (" + bench::number(more) + " more)";
  }
  json.add("rounds", static_cast<double>(rounds.played.size()));
  json.print();
  std::fprintf(stderr, "%s\n", human.c_str());
}

void run_cpu_rows(bool quick, bench::Targets&) {
  at::set_num_threads(1);
  bench::OneCore const core(true);
  using Cluster = distgrad::LocalCluster<2>;
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::vector<std::vector<bench::Call>> calls;
  for (auto const* name : names) {
    distgrad::LoopbackEngine::Options options;
    options.queues.threads = 1;
    clusters.push_back(std::make_unique<Cluster>(observe(name, std::move(options))));
    calls.push_back(calls_of((*clusters.back())[0]));
  }
  auto const all = rows();
  for (std::size_t row = 0; row < all.size(); ++row) {
    bench::RoundPlan const plan{quick ? 20 : 200, quick ? 2. : 20.};
    print_cpu_row(all[row], bench::play_rounds(plan, {::getpid()}, [&](int i) {
                    Round round;
                    for (std::size_t k = 0; k < ways; ++k) {
                      auto const who = (static_cast<std::size_t>(i) + k) % ways;
                      round[who] = cpu_us(calls[who][row]);
                    }
                    return round;
                  }));
  }
  for (auto& cluster : clusters) cluster->shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program;
  program.name = "observed";
  program.run_role = run_role;
  program.reference = names[off];
  program.rows = rows();
  program.contestants.assign(std::begin(names), std::end(names));
  program.own = off;
  program.own_rows = run_cpu_rows;
  return bench::run_program(program, argc, argv);
}
