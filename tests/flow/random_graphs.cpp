// Whatever the graph and however it is cut over workers, the gradients are those of the uncut one.
//
// DISTGRAD_SEEDS=5000 runs more graphs, DISTGRAD_FIRST_SEED=17 starts at another one. A graph that
// fails is printed as a program.

#include "random/compare.hpp"
#include "random/maker.hpp"
#include "random/printer.hpp"
#include "workers.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace random_graphs_tests {

using namespace distgrad;
using namespace random_graphs;

namespace {

constexpr int most_failures = 3;
constexpr std::uint64_t graphs_between_checks = 100;

std::uint64_t number_from_environment(char const* name, std::uint64_t otherwise) {
  auto const* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// @return whether all is well.
bool check_graph(rig::Workers const& w, std::uint64_t seed, char const* engine) {
  auto const graph = Maker(seed).make();
  bool right = true;
  for (auto mode : {BackwardMode::smart, BackwardMode::fast}) {
    if (mode == BackwardMode::fast && !allows_fast(graph)) continue;
    auto const wrong = compare(graph, w[graph.initiator], mode);
    CHECK_MESSAGE(wrong.empty(), "seed ", seed,
                  std::string(mode == BackwardMode::fast ? " in FAST mode: " : " in SMART mode: "),
                  wrong, "\n\n", program_of(graph, mode, engine));
    right = right && wrong.empty();
  }
  return right;
}

/// What a worker still holds of graphs that ran, in words; empty if nothing.
std::string left_on(Worker const& worker) {
  auto const info = worker.debug_info();
  std::string text;
  auto const say = [&](char const* what, std::size_t count) {
    if (count > 0) text += " " + std::to_string(count) + " " + what;
  };
  say("contexts", info.autograd_contexts);
  say("passes", info.backward_passes);
  say("rrefs", info.owned_rrefs);
  say("forks", info.forks);
  say("calls", info.pending_calls);
  return text.empty() ? text : worker.name() + ":" + text + "\n";
}

bool check_nothing_is_left(rig::Workers const& w) {
  std::string left;
  rig::eventually([&] {
    left.clear();
    for (std::size_t rank = 0; rank < w.size(); ++rank) left += left_on(w[rank]);
    return left.empty();
  });
  CHECK_MESSAGE(left.empty(), "the graphs that ran left something behind\n", left);
  return left.empty();
}

/// A bit of everything a printed program can have.
Graph small_graph() {
  using namespace operations;
  Graph graph;
  graph.initiator = 1;
  graph.second = Second::by_grad;
  graph.nodes = {
      {&leaf, {0, 2, 3, 1}, {}, {{2, 3}}, 1, {}, Keep::sent},
      {&hooked_leaf, {1, 2, 3, 1}, {}, {{2, 3}}, 2, {}, Keep::at_worker},
      {&mul, {}, {{0, 0}, {1, 0}}, {{2, 3}}, 2, {0, 1}, Keep::sent},
      {&mix, {}, {{2, 0}, {1, 0}}, {{2, 3}, {2, 3}}, 0, {2}, Keep::at_worker},
      {&hook_operand, {}, {{3, 1}}, {{2, 3}}, 1, {2}, Keep::at_relay},
      {&slice, {1, 0, 2}, {{4, 0}}, {{2, 2}}, 2, {}, Keep::sent},
  };
  graph.passes = {{{{3, 0}, {5, 0}}, false}};
  return graph;
}

std::string text_of(std::filesystem::path const& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

// The expected text is compiled and run as a test of its own. After a change on purpose: print the
// program with DISTGRAD_PRINT=<file>.
TEST_CASE("a random graph is printed as the program in printed_program.cpp") {
  auto const program = program_of(small_graph(), BackwardMode::smart, "LoopbackEngine");
  if (auto const* file = std::getenv("DISTGRAD_PRINT")) std::ofstream(file) << program;
  auto const expected = std::filesystem::path(__FILE__).replace_filename("printed_program.cpp");
  CHECK(program == text_of(expected));
}

TEST_CASE_TEMPLATE("random graphs cut over random workers have the gradients of the uncut graph",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<Maker::workers, Engine> cluster;
  rig::Workers const w(cluster);
  bool const over_memory = std::is_same_v<Engine, LoopbackEngine>;
  auto const first = number_from_environment("DISTGRAD_FIRST_SEED", 1);
  auto const count = number_from_environment("DISTGRAD_SEEDS", over_memory ? 1000 : 100);
  int failures = 0;
  for (auto seed = first; seed < first + count && failures < most_failures; ++seed) {
    if (!check_graph(w, seed, over_memory ? "LoopbackEngine" : "TcpEngine")) ++failures;
    if (seed % graphs_between_checks == 0 && !check_nothing_is_left(w)) break;
  }
  check_nothing_is_left(w);
  cluster.shutdown();
}

}  // namespace random_graphs_tests
