#pragma once
// The executor of a modelled worker: counts of what each node waits for, and what is ready.

#include "pass_part.hpp"

namespace pass_model {

/// @return the recv functions reached for the first time.
inline std::vector<int> Part::expand(std::vector<int> nodes) {
  std::vector<int> reached;
  std::erase_if(nodes, [&](int node) { return nodes_.expanded & bit(node); });
  for (auto node : nodes) nodes_.expanded |= bit(node);
  while (!nodes.empty()) {
    auto const node = nodes.back();
    nodes.pop_back();
    if (graph_->nodes[node].pair >= 0) reached.push_back(node);
    for (auto next : graph_->nodes[node].next) {
      ++nodes_.waits[next];
      if (nodes_.expanded & bit(next)) continue;
      nodes_.expanded |= bit(next);
      nodes.push_back(next);
    }
  }
  return reached;
}

inline std::vector<int> Part::mark(std::vector<int> nodes) {
  std::vector<int> reached;
  while (!nodes.empty()) {
    auto const node = nodes.back();
    nodes.pop_back();
    require(nodes_.expanded & bit(node), "a node takes part that was not expanded");
    if (nodes_.marked & bit(node)) continue;
    nodes_.marked |= bit(node);
    if (graph_->nodes[node].pair >= 0) reached.push_back(node);
    nodes.insert(nodes.end(), graph_->nodes[node].next.begin(), graph_->nodes[node].next.end());
  }
  return reached;
}

inline Reached Part::follow(std::vector<int> nodes) {
  Reached others;
  while (!nodes.empty()) {
    std::vector<int> own;
    for (auto node : nodes) {
      auto const pair = graph_->nodes[node].pair;
      if (graph_->is_cross(pair)) {
        others[WorkerId(std::uint32_t(graph_->sender(pair)))].push_back(graph_->id(pair));
      } else {
        own.push_back(graph_->pairs[pair].send);
      }
    }
    nodes = is_overlapped() ? mark(own) : expand(own);
  }
  return others;
}

inline void Part::retire() {
  for (int node = 0; node < int(graph_->nodes.size()); ++node) {
    if (!(nodes_.expanded & bit(node)) || nodes_.marked & bit(node)) continue;
    require(!(nodes_.ran & bit(node)), "a node ran that does not take part");
    for (auto next : graph_->nodes[node].next) {
      if (nodes_.marked & bit(next) && --nodes_.waits[next] == 0) ready_.push_back(next);
    }
    nodes_.retired |= bit(node);
  }
}

inline bool Part::is_complete_now() const {
  if (!inbox_.empty() || !ready_.empty() || retires_) return false;
  auto const waiting = nodes_.expanded & ~nodes_.ran & ~nodes_.retired;
  return waiting == 0;
}

inline void Part::run_slice() {
  if (is_initiator() && !std::exchange(has_begun_, true)) {
    for (auto root : graph_->roots) {
      if (nodes_.waits[root] == 0) ready_.push_back(root);
    }
  }
  for (auto pair : std::exchange(inbox_, {})) inject(pair);
  if (std::exchange(retires_, false)) retire();
  while (!ready_.empty()) {
    auto const node = ready_.back();
    ready_.pop_back();
    if (node == rules_->failing_node) return fail();
    run_node(node);
  }
  if (!is_complete_now() || complete_) return;
  complete_ = true;
  if (!is_initiator() && !rules_->options.commits_globally) visible_ = true;
  carry_out(protocol_->local_part_complete());
}

inline void Part::inject(int pair) {
  auto const send = graph_->pairs[pair].send;
  require(nodes_.expanded & bit(send) && !(nodes_.retired & bit(send)),
          "gradients came for a message that does not take part");
  require(!(nodes_.injected & bit(send)), "a send function got gradients twice");
  nodes_.injected |= bit(send);
  arrive(graph_->pairs[pair].recv, send);
  ready_.push_back(send);
}

inline void Part::arrive(int from, int node) {
  require(!(nodes_.got[node] & bit(from)), "a gradient came twice");
  nodes_.got[node] |= bit(from);
}

inline void Part::run_node(int node) {
  auto const name = "node " + std::to_string(node);
  require(!(nodes_.ran & bit(node)), name + " ran twice");
  nodes_.ran |= bit(node);
  auto const active = abstract_graph::reachable(*graph_);
  require(active[node], name + " ran and does not take part");
  for (int before = 0; before < int(graph_->nodes.size()); ++before) {
    auto const& [worker, next, pair] = graph_->nodes[before];
    bool const leads =
        std::ranges::count(next, node) > 0 || (pair >= 0 && graph_->pairs[pair].send == node);
    require(!leads || !active[before] || nodes_.got[node] & bit(before),
            name + " ran without the gradients of node " + std::to_string(before));
  }
  for (auto next : graph_->nodes[node].next) {
    arrive(node, next);
    if (--nodes_.waits[next] == 0) ready_.push_back(next);
  }
  auto const pair = graph_->nodes[node].pair;
  if (pair < 0) return;
  if (!graph_->is_cross(pair)) return inject(pair);
  WorkerId const to(std::uint32_t(graph_->sender(pair)));
  protocol_->gradient_sent(to);
  post(Kind::gradient, to, {{}, 0, 0, std::uint32_t(pair), {}, {}});
}

}  // namespace pass_model
