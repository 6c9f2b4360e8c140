// The protocol of a pass, checked in every state that three workers can get into.
#include <distgrad/engine/pass_protocol.hpp>

#include "pass_explorer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>

namespace pass_model_tests {

using namespace pass_model;

namespace {

using State = Explorer::State;

// --- the graphs ----------------------------------------------------------------------------------

/// 0 needs 1, which needs 2, which needs 1, which needs 0.
Graph chain() {
  Graph g{.name = "chain", .workers = 3};
  auto const first = g.message(1, 0, {g.node(0)});
  auto const second = g.message(2, 1, {g.node(1, {first})});
  auto const third = g.message(1, 2, {g.node(2, {second})});
  auto const last = g.message(0, 1, {g.node(1, {third})});
  g.roots = {g.node(0, {last})};
  return g;
}
/// 0 uses one of two results of 1, and only the unused one leads on.
Graph hidden_path() {
  Graph g{.name = "hidden path", .workers = 3};
  auto const to_one = g.message(1, 0, {g.node(0)});
  auto const one = g.node(1, {to_one});
  auto const used = g.message(0, 1, {one});
  auto const from_two = g.message(1, 2, {g.node(2)});
  g.message(0, 1, {g.node(1, {from_two, one})});  // not used
  g.roots = {g.node(0, {used})};
  return g;
}
/// 1 and 2 need results of each other.
Graph cycle() {
  Graph g{.name = "cycle", .workers = 3};
  auto const one = g.node(1), two = g.node(2);
  auto const at_two = g.message(2, 1, {one}), at_one = g.message(1, 2, {two});
  auto const from_one = g.message(0, 1, {g.node(1, {at_one, one})});
  auto const from_two = g.message(0, 2, {g.node(2, {at_two})});
  g.roots = {g.node(0, {from_one}), g.node(0, {from_two})};
  return g;
}
/// A whole chain that nobody uses beside one that is used.
Graph unused() {
  Graph g{.name = "unused", .workers = 3};
  auto const weight = g.node(1);
  auto const from_two = g.message(1, 2, {g.node(2)});
  g.message(0, 1, {g.node(1, {from_two, weight})});  // not used
  g.message(2, 1, {weight});                         // not used
  auto const used = g.message(0, 1, {weight});
  g.roots = {g.node(0, {used})};
  return g;
}
/// Calls of workers to themselves on the way.
Graph self_calls() {
  Graph g{.name = "self calls", .workers = 3};
  auto const at_one = g.message(1, 1, {g.node(1)});
  auto const one = g.message(0, 1, {g.node(1, {at_one})});
  auto const two = g.message(0, 2, {g.node(2)});
  auto const own = g.message(0, 0, {g.node(0, {one, two})});
  g.roots = {g.node(0, {own})};
  return g;
}
/// 0 needs 1 and 2, which both need the same node of 0.
Graph diamond() {
  Graph g{.name = "diamond", .workers = 3};
  auto const bottom = g.node(0);
  auto const left = g.message(1, 0, {bottom}), right = g.message(2, 0, {bottom});
  auto const one = g.message(0, 1, {g.node(1, {left})});
  auto const two = g.message(0, 2, {g.node(2, {right})});
  g.roots = {g.node(0, {one, two})};
  return g;
}
/// One node of 2 needed by 0 and, over 1, needed again: 2 is asked twice.
Graph twice_asked() {
  Graph g{.name = "twice asked", .workers = 3};
  auto const two = g.node(2);
  auto const at_one = g.message(1, 2, {two}), again = g.message(1, 2, {g.node(2, {two})});
  auto const at_zero = g.message(0, 2, {two});
  auto const one = g.message(0, 1, {g.node(1, {at_one, again})});
  g.roots = {g.node(0, {at_zero, one})};
  return g;
}
/// 0 needs 1, which needs 2.
Graph line() {
  Graph g{.name = "line", .workers = 3};
  auto const two = g.message(1, 2, {g.node(2)});
  auto const one = g.message(0, 1, {g.node(1, {two}), g.node(1)});
  g.roots = {g.node(0, {one})};
  return g;
}
/// Nothing of other workers is used.
Graph local() {
  Graph g{.name = "local", .workers = 3};
  g.message(1, 0, {g.node(0)});
  g.message(0, 1, {g.node(1)});
  auto const own = g.message(0, 0, {g.node(0)});
  g.roots = {g.node(0, {own})};
  return g;
}

/// Four messages between three workers, used or not.
Graph random_graph(unsigned seed) {
  std::mt19937 random(seed);
  auto const below = [&](int n) { return int(random() % unsigned(n)); };
  Graph g{.name = "random " + std::to_string(seed), .workers = 3};
  std::vector<int> values{g.node(0), g.node(1), g.node(2)};
  auto const any = [&] { return values[below(int(values.size()))]; };
  while (g.pairs.size() < 4) {
    auto const worker = g.pairs.size() == 3 ? 0 : below(3);
    std::vector<int> next;
    auto const from = any();
    if (g.nodes[from].worker != worker) {
      next.push_back(g.message(worker, g.nodes[from].worker, {from}));
    }
    auto const other = any();
    if (g.nodes[other].worker == worker && below(2) == 0) next.push_back(other);
    if (!next.empty()) values.push_back(g.node(worker, std::move(next)));
  }
  g.roots = {values.back()};
  if (auto const other = any(); g.nodes[other].worker == 0 && other != values.back()) {
    g.roots.push_back(other);
  }
  return g;
}
constexpr unsigned random_graphs = 30;

std::vector<Graph> graphs() {
  std::vector<Graph> all{chain(),   hidden_path(), cycle(), unused(), self_calls(),
                         diamond(), twice_asked(), line(),  local()};
  for (unsigned seed = 1; seed <= random_graphs; ++seed) all.push_back(random_graph(seed));
  return all;
}

bool allows_fast(Graph const& graph) {
  auto const active = abstract_graph::reachable(graph);
  return std::ranges::all_of(graph.pairs, [&](auto pair) { return active[pair.recv]; });
}

// --- what must hold ------------------------------------------------------------------------------

std::uint32_t bits_of(Graph const& graph, std::vector<bool> const& active, int worker) {
  std::uint32_t bits = 0;
  for (int node = 0; node < int(graph.nodes.size()); ++node) {
    if (active[node] && graph.nodes[node].worker == worker) bits |= 1u << node;
  }
  return bits;
}

/// Whoever tries again after a node failed meets nothing of the pass.
void check_stopped(Explorer const& all, State const& state) {
  if (!all.part(state, 0).has_failed()) return;
  for (int worker = 0; worker < all.graph().workers; ++worker) {
    require(all.part(state, worker).has_no_state(), "the initiator is finished before all stopped");
  }
}

/// The initiator is not finished before all gradients are visible, and with global commit nobody
/// sees any unless everybody's part was complete.
void check_order(Explorer const& all, State const& state) {
  auto const active = abstract_graph::reachable(all.graph());
  bool is_visible = false, is_complete = true, is_all_visible = true;
  for (int worker = 0; worker < all.graph().workers; ++worker) {
    auto const& part = all.part(state, worker);
    is_visible = is_visible || part.is_visible();
    bool const takes_part = bits_of(all.graph(), active, worker) != 0;
    is_complete = is_complete && (part.is_complete() || !takes_part);
    is_all_visible = is_all_visible && (part.is_visible() || !takes_part);
  }
  auto const& initiator = all.part(state, 0);
  require(!initiator.is_over() || initiator.has_failed() || is_all_visible || all.is_dead(state, 0),
          "the initiator is finished before all gradients are visible");
  if (all.rules().failing_node >= 0 && initiator.is_over()) check_stopped(all, state);
  if (!all.rules().options.commits_globally) return;
  require(!is_visible || is_complete, "gradients are visible of a pass that is not complete");
}

void check_nothing_is_left(Explorer const& all, State const& state) {
  for (int worker = 0; worker < all.graph().workers; ++worker) {
    require(all.is_dead(state, worker) || all.part(state, worker).has_no_state(),
            "worker " + std::to_string(worker) + " is left with state of the pass");
  }
}

/// The number of each kind of message, by spec; only how questions are batched is left open.
void check_counts(Explorer const& all, State const& state, std::size_t participants) {
  auto const& graph = all.graph();
  auto const& options = all.rules().options;
  auto const active = abstract_graph::reachable(graph);
  std::set<std::pair<int, int>> links;
  int cross = 0;
  for (int pair = 0; pair < int(graph.pairs.size()); ++pair) {
    if (!graph.is_cross(pair) || !active[graph.pairs[pair].recv]) continue;
    ++cross;
    links.insert({graph.receiver(pair), graph.sender(pair)});
  }
  std::map<Kind, int> sent;
  for (int worker = 0; worker < graph.workers; ++worker) {
    for (int kind = 0; kind < int(kind_names.size()); ++kind) {
      sent[Kind(kind)] += all.part(state, worker).number_sent(Kind(kind));
    }
  }
  auto const p = int(participants);
  require(sent[Kind::gradient] == cross, "another number of GRAD than of pairs in use");
  require(sent[Kind::done] == p, "another number of DONE than of participants");
  bool const dismisses = options.commits_globally || options.is_overlapped;
  require(sent[Kind::commit] == (dismisses ? p : 0), "another number of COMMIT");
  require(sent[Kind::committed] == (options.commits_globally ? p : 0),
          "another number of COMMITTED");
  require(sent[Kind::failed] + sent[Kind::abort] + sent[Kind::aborted] == 0, "an abort was sent");
  if (!options.is_smart || options.is_overlapped) {
    require(options.is_smart || sent[Kind::discover] == 0, "FAST asked");
    require(sent[Kind::discover] <= cross && sent[Kind::discovered] <= sent[Kind::discover] &&
                sent[Kind::release] <= p,
            "more questions, answers or RELEASE than there is reason for");
    return;
  }
  require(sent[Kind::discover] >= int(links.size()) && sent[Kind::discover] <= cross,
          "another number of DISCOVER than of workers to ask");
  require(sent[Kind::discovered] == sent[Kind::discover], "not one answer for each question");
  require(sent[Kind::release] == 0, "a RELEASE was sent");
}

/// A pass in which nothing fails.
void check_success(Explorer const& all, State const& state) {
  check_nothing_is_left(all, state);
  auto const& graph = all.graph();
  bool const discovers_first = all.rules().options.is_smart && !all.rules().options.is_overlapped;
  auto const active = abstract_graph::reachable(graph);
  auto const sends = abstract_graph::active_sends(graph, active);
  std::set<WorkerId> participants;
  for (int worker = 0; worker < graph.workers; ++worker) {
    auto const& part = all.part(state, worker);
    auto const expected = bits_of(graph, active, worker);
    if (worker != 0 && expected != 0) participants.insert(WorkerId(std::uint32_t(worker)));
    require(!part.has_failed(), "a part failed without a reason");
    require(part.nodes_that_ran() == expected, "not exactly the nodes that take part ran");
    require(part.is_visible() == (worker == 0 || expected != 0), "gradients are not visible");
    if (!discovers_first) continue;
    require(part.nodes_that_were_found() == expected, "another set of nodes was found");
    require(part.active() == sends[worker], "another set of send functions was found");
  }
  auto const& found = all.part(state, 0).participants();
  require(found == participants, "the initiator knows other participants");
  if (all.rules().counts) check_counts(all, state, participants.size());
}

/// A pass in which something may have failed: everybody ends, and the initiator takes no part of it
/// for the whole.
void check_end(Explorer const& all, State const& state) {
  check_nothing_is_left(all, state);
  if (all.is_dead(state, 0)) return;
  auto const& initiator = all.part(state, 0);
  auto const active = abstract_graph::reachable(all.graph());
  bool is_whole = true;
  for (int worker = 0; worker < all.graph().workers; ++worker) {
    auto const& part = all.part(state, worker);
    is_whole = is_whole && part.nodes_that_ran() == bits_of(all.graph(), active, worker);
  }
  require(initiator.is_over(), "the initiator is not finished");
  require(is_whole || initiator.has_failed(), "the initiator takes a part for the whole");
  require(initiator.is_visible() != initiator.has_failed(), "an error, and gradients");
}
/// A node failed: as before, and the initiator has the error, and with global commit no worker has
/// gradients.
void check_failure(Explorer const& all, State const& state) {
  check_end(all, state);
  auto const active = abstract_graph::reachable(all.graph());
  if (!active[all.rules().failing_node]) return check_success(all, state);
  require(all.part(state, 0).has_failed(), "the initiator has no error");
  for (int worker = 0; worker < all.graph().workers; ++worker) {
    require(!all.rules().options.commits_globally || !all.part(state, worker).is_visible(),
            "a failed pass left gradients");
  }
}

/// Explores, and reports what is wrong. @return the number of states.
/// In FAST mode an abort relies on the order of each link: who is done is forgotten where it was,
/// and its last word must come before its answer to the abort.
std::size_t explore(Graph const& graph, Rules const& rules, Misfortune misfortune,
                    Explorer::Check const& at_end) {
  bool const may_fail = rules.failing_node >= 0 || misfortune.dies >= 0 || misfortune.releases >= 0;
  misfortune.keeps_order = may_fail && !rules.options.is_smart;
  Explorer all(graph, rules, misfortune);
  auto const wrong = all.run(check_order, at_end);
  CHECK_MESSAGE(wrong.empty(), graph.name, ", smart ", rules.options.is_smart, ", overlapped ",
                rules.options.is_overlapped, ", global commit ", rules.options.commits_globally,
                ", failing node ", rules.failing_node, ", dies ", misfortune.dies, ", releases ",
                misfortune.releases, ": ", wrong);
  CHECK(all.ends() > 0);
  if (std::getenv("PASS_MODEL_STATES")) {
    std::cout << graph.name << ": " << all.states() << " states, " << all.ends() << " ends\n";
  }
  return all.states();
}

/// Messages that worker 0 waits for at the same time.
std::ptrdiff_t branches(Graph const& graph) {
  auto const active = abstract_graph::reachable(graph);
  return std::ranges::count_if(graph.pairs, [&](auto pair) {
    return active[pair.recv] && graph.nodes[pair.recv].worker == 0 &&
           graph.nodes[pair.send].worker != 0;
  });
}

template <class Use>
void for_all(Use use) {
  for (auto const& graph : graphs()) {
    for (bool globally : {false, true}) {
      use(graph, PassOptions{.commits_globally = globally});
      use(graph, PassOptions{.commits_globally = globally, .is_overlapped = true});
      if (!allows_fast(graph)) continue;
      use(graph, PassOptions{.is_smart = false, .commits_globally = globally});
    }
  }
}

}  // namespace

TEST_CASE("in every order of messages a pass ends, complete and with the counts of the formula") {
  for_all([](Graph const& graph, PassOptions options) {
    explore(graph, {.options = options, .counts = true}, {}, check_success);
  });
}

TEST_CASE("in every order of messages, some of which come twice, a pass ends complete") {
  for_all([](Graph const& graph, PassOptions options) {
    explore(graph, {.options = options}, {.copies = options.is_overlapped ? 1 : 2}, check_success);
  });
}

TEST_CASE("in every order of messages a node that fails ends the pass for everybody") {
  for_all([](Graph const& graph, PassOptions options) {
    for (int node = 0; node < int(graph.nodes.size()); ++node) {
      explore(graph, {.options = options, .failing_node = node}, {}, check_failure);
    }
  });
}

TEST_CASE("a worker that dies at any point ends the pass for everybody") {
  for_all([](Graph const& graph, PassOptions options) {
    for (int worker = 0; worker < graph.workers; ++worker) {
      explore(graph, {.options = options}, {.dies = worker}, check_end);
    }
  });
}

TEST_CASE("a context that is released at any point ends the pass for everybody") {
  for_all([](Graph const& graph, PassOptions options) {
    if (options.is_overlapped && branches(graph) > 1) return;  // millions of states
    for (int worker = 0; worker < graph.workers; ++worker) {
      explore(graph, {.options = options}, {.releases = worker}, check_end);
    }
  });
}

}  // namespace pass_model_tests
