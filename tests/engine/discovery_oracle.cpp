// What takes part in a pass, found in three ways that share nothing: by asking on, as passes do;
// by brute force on the uncut graph; and by null propagation, where every recv function of the
// context says either "gradients" or "nothing", and a send function hears exactly one of the two.
#include <distgrad/engine/discovery_protocol.hpp>

#include "abstract_graph.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

namespace discovery_oracle_tests {

using namespace abstract_graph;

namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  int below(int n) { return int(engine_() % std::uint64_t(n)); }
  bool one_in(int n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

/// Values made on random workers from values made before, sent to where they are used; some are
/// sent and never used.
Graph random_graph(Random& random) {
  Graph graph{.name = "random", .workers = 1 + random.below(6)};
  int const most_inputs = 1 + random.below(4), unused = 2 + random.below(5);
  std::vector<int> values;
  auto const any = [&] { return values[values.size() - 1 - random.below(int(values.size()))]; };
  for (int count = 3 + random.below(30); count > 0; --count) {
    auto const worker = random.below(graph.workers);
    std::vector<int> next;
    for (int i = values.empty() ? 0 : random.below(most_inputs + 1); i > 0; --i) {
      auto const value = any();
      auto const from = graph.nodes[value].worker;
      bool const travels = from != worker || random.one_in(8);
      auto const used = travels ? graph.message(worker, from, {value}) : value;
      if (!random.one_in(unused)) next.push_back(used);
    }
    values.push_back(graph.node(worker, std::move(next)));
  }
  for (int count = 1 + random.below(3); count > 0; --count) {
    auto const value = any();
    auto const from = graph.nodes[value].worker;
    graph.roots.push_back(from == 0 ? value : graph.message(0, from, {value}));
  }
  return graph;
}

// --- by asking on --------------------------------------------------------------------------------

/// Workers that ask one another over a network that delivers in any order, now and then twice.
class Asking {
 public:
  Asking(Graph const& graph, Random& random)
      : graph_(graph), random_(random), walked_(graph.nodes.size()) {
    for (int worker = 0; worker < graph.workers; ++worker) {
      parts_.emplace_back(WorkerId(std::uint32_t(worker)), WorkerId{0});
    }
  }

  void run() {
    carry_out(0, parts_[0].start(walk(graph_.roots)));
    while (!network_.empty()) {
      CHECK_FALSE((parts_[0].is_finished() && questions_on_their_way_ > 0));
      auto const at = random_.below(int(network_.size()));
      std::swap(network_[at], network_.back());
      auto frame = std::move(network_.back());
      network_.pop_back();
      deliver(frame);
    }
  }
  DiscoveryProtocol const& part(int worker) const { return parts_[worker]; }
  std::vector<bool> const& walked() const { return walked_; }
  std::size_t asked() const { return asked_; }
  std::size_t answered() const { return answered_; }

 private:
  struct Frame {
    int from, to;
    bool is_question, is_again;  // the answer to a copy
    std::uint32_t number;
    std::vector<AutogradMessageId> messages;
    std::set<WorkerId> participants;
    std::size_t copy_of = 0;
  };

  Reached walk(std::vector<int> nodes) {
    Reached reached;
    while (!nodes.empty()) {
      auto const node = nodes.back();
      nodes.pop_back();
      if (walked_[node]) continue;
      walked_[node] = true;
      nodes.insert(nodes.end(), graph_.nodes[node].next.begin(), graph_.nodes[node].next.end());
      auto const pair = graph_.nodes[node].pair;
      if (pair < 0) continue;
      if (graph_.is_cross(pair)) {
        reached[WorkerId(std::uint32_t(graph_.sender(pair)))].push_back(graph_.id(pair));
      } else {
        nodes.push_back(graph_.pairs[pair].send);
      }
    }
    return reached;
  }
  void deliver(Frame const& frame) {
    bool const again = !arrived_.insert(frame.copy_of).second || frame.is_again;
    if (frame.is_question && !again) --questions_on_their_way_;
    auto& part = parts_[frame.to];
    WorkerId const from(std::uint32_t(frame.from));
    if (!frame.is_question) {
      carry_out(frame.to, part.discovered(frame.number, frame.participants));
      return;
    }
    std::vector<int> sends;
    for (auto const& message : part.discover(from, frame.number, frame.messages)) {
      sends.push_back(graph_.pairs[message.sequence - 1].send);
    }
    carry_out(frame.to, part.expanded(from, frame.number, walk(std::move(sends))), again);
  }
  void carry_out(int self, DiscoveryActions const& actions, bool again = false) {
    asked_ += actions.discover.size();
    answered_ += again ? 0 : actions.discovered.size();
    std::set<WorkerId> once;
    for (auto const& question : actions.discover) {
      CHECK(once.insert(question.to).second);  // at most one message per walk and worker
      post({self, int(question.to.value), true, again, question.number, question.messages, {}});
    }
    for (auto const& answer : actions.discovered) {
      post({self, int(answer.to.value), false, again, answer.number, {}, answer.participants});
    }
  }
  void post(Frame frame) {
    frame.copy_of = ++last_frame_;
    if (frame.is_question) ++questions_on_their_way_;
    network_.push_back(frame);
    if (random_.one_in(4)) network_.push_back(std::move(frame));
  }

  Graph const& graph_;
  Random& random_;
  std::vector<bool> walked_;
  std::vector<DiscoveryProtocol> parts_;
  std::vector<Frame> network_;
  std::set<std::size_t> arrived_;
  std::size_t asked_ = 0, answered_ = 0, questions_on_their_way_ = 0, last_frame_ = 0;
};

// --- by null propagation -------------------------------------------------------------------------

/// Every worker that knows the context takes part. A node speaks when all that could lead to it
/// have spoken: gradients if any of them had some, or if it is a root; else nothing.
std::vector<bool> propagate(Graph const& graph) {
  auto const count = graph.nodes.size();
  std::vector<int> missing(count);
  std::vector<bool> has_gradients(count);
  auto const edges = [&](int node) {
    auto next = graph.nodes[node].next;
    if (auto const pair = graph.nodes[node].pair; pair >= 0) next.push_back(graph.pairs[pair].send);
    return next;
  };
  for (int node = 0; node < int(count); ++node) {
    for (auto next : edges(node)) ++missing[next];
  }
  for (auto root : graph.roots) has_gradients[root] = true;
  std::vector<int> ready;
  for (int node = 0; node < int(count); ++node) {
    if (missing[node] == 0) ready.push_back(node);
  }
  std::size_t spoken = 0;
  for (; !ready.empty(); ++spoken) {
    auto const node = ready.back();
    ready.pop_back();
    for (auto next : edges(node)) {
      if (has_gradients[node]) has_gradients[next] = true;
      if (--missing[next] == 0) ready.push_back(next);
    }
  }
  CHECK(spoken == count);
  return has_gradients;
}

std::uint64_t graphs_to_try() {
  auto const* text = std::getenv("DISTGRAD_SEEDS");
  return text ? std::strtoull(text, nullptr, 10) : 5000;
}

}  // namespace

TEST_CASE("asking on finds what brute force and null propagation find, in any order of messages") {
  std::size_t with_unused = 0, with_cycles = 0;
  for (std::uint64_t seed = 1; seed <= graphs_to_try(); ++seed) {
    CAPTURE(seed);
    Random random(seed);
    auto const graph = random_graph(random);
    auto const active = reachable(graph);
    REQUIRE((propagate(graph) == active));

    Asking asking(graph, random);
    asking.run();
    REQUIRE(asking.part(0).is_finished());
    REQUIRE((asking.walked() == active));
    auto const sends = active_sends(graph, active);
    std::set<WorkerId> participants;
    std::set<std::pair<int, int>> links;
    for (int worker = 0; worker < graph.workers; ++worker) {
      REQUIRE((asking.part(worker).active() == sends[worker]));
      if (worker != 0 && !sends[worker].empty()) {
        participants.insert(WorkerId(std::uint32_t(worker)));
      }
    }
    REQUIRE((asking.part(0).participants() == participants));

    std::size_t cross = 0, unused = 0;
    for (int pair = 0; pair < int(graph.pairs.size()); ++pair) {
      bool const counts = graph.is_cross(pair) && active[graph.pairs[pair].send];
      unused += !active[graph.pairs[pair].send];
      if (!counts) continue;
      ++cross;
      links.insert({graph.receiver(pair), graph.sender(pair)});
    }
    CHECK(asking.asked() >= links.size());
    CHECK(asking.asked() <= cross);
    CHECK(asking.answered() == asking.asked());
    with_unused += unused > 0;
    with_cycles += std::ranges::any_of(links, [&](auto link) {
      return link.first < link.second && links.contains({link.second, link.first});
    });
  }
  if (graphs_to_try() < 1000) return;  // too few to count
  CHECK(with_unused > graphs_to_try() / 2);
  CHECK(with_cycles > graphs_to_try() / 4);
}

}  // namespace discovery_oracle_tests
