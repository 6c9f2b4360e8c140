#pragma once
// Backward graphs cut over workers, with nodes that are only numbers.

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <distgrad/core/ids.hpp>

namespace abstract_graph {

using namespace distgrad;

/// A node whose `pair` is not negative is a recv function; the gradients of its message go to the
/// send function of the pair, on another worker or the same.
struct Node {
  int worker;
  std::vector<int> next;
  int pair = -1;
};
struct Pair {
  int recv, send;
};

/// Built from the leaves to the roots, so that a node's number is above those it leads to.
struct Graph {
  std::string name;
  int workers = 0;
  std::vector<Node> nodes = {};
  std::vector<Pair> pairs = {};
  std::vector<int> roots = {};  // of worker 0

  int node(int worker, std::vector<int> next = {}) {
    nodes.push_back({worker, std::move(next)});
    return int(nodes.size()) - 1;
  }
  /// A recv function of `worker` for a message that `sender` sent from nodes `next`.
  int message(int worker, int sender, std::vector<int> next) {
    auto const send = node(sender, std::move(next));
    auto const recv = node(worker);
    nodes[recv].pair = int(pairs.size());
    pairs.push_back({recv, send});
    return recv;
  }

  int sender(int pair) const { return nodes[pairs[pair].send].worker; }
  int receiver(int pair) const { return nodes[pairs[pair].recv].worker; }
  bool is_cross(int pair) const { return sender(pair) != receiver(pair); }
  AutogradMessageId id(int pair) const {
    return {WorkerId{std::uint32_t(sender(pair))}, Incarnation{1}, std::uint64_t(pair) + 1};
  }
};

/// By brute force, for each node: does a root lead to it?
inline std::vector<bool> reachable(Graph const& graph) {
  std::vector<bool> active(graph.nodes.size());
  auto rest = graph.roots;
  while (!rest.empty()) {
    auto const node = rest.back();
    rest.pop_back();
    if (active[node]) continue;
    active[node] = true;
    rest.insert(rest.end(), graph.nodes[node].next.begin(), graph.nodes[node].next.end());
    if (auto const pair = graph.nodes[node].pair; pair >= 0) {
      rest.push_back(graph.pairs[pair].send);
    }
  }
  return active;
}

/// The send functions of each worker that are `active`, those of calls to itself left out.
inline std::vector<std::set<AutogradMessageId>> active_sends(Graph const& graph,
                                                             std::vector<bool> const& active) {
  std::vector<std::set<AutogradMessageId>> sends(graph.workers);
  for (int pair = 0; pair < int(graph.pairs.size()); ++pair) {
    if (!graph.is_cross(pair) || !active[graph.pairs[pair].send]) continue;
    sends[graph.sender(pair)].insert(graph.id(pair));
  }
  return sends;
}

}  // namespace abstract_graph
