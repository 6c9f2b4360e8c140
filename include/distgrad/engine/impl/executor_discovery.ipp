#pragma once
#include <algorithm>
#include <utility>

#include <distgrad/core/error.hpp>
#include <distgrad/engine/executor.hpp>
#include <distgrad/engine/node_call.hpp>

#include <ATen/ops/ones_like.h>

namespace distgrad {

// --- discovery -----------------------------------------------------------------------------------

DISTGRAD_DECL void Executor::expand(std::span<node_ptr const> sends) {
  require_discovery();
  for (node_ptr const& send : sends) {
    std::uint32_t const number = intern(send.get());
    if (states_[number].kind == Kind::send) continue;
    states_[number].kind = Kind::send;
    held_.push_back(send);
  }
  expand_found();
}

DISTGRAD_DECL void Executor::add_root(at::Tensor const& root, at::Tensor gradient) {
  require_discovery();
  if (!root.defined() || !root.requires_grad()) {
    throw Error(errc::invalid_root,
                "the root does not require grad and has no grad_fn: no path leads from it to a "
                "variable");
  }
  Edge const edge = torch::autograd::impl::gradient_edge(root);
  if (!gradient.defined()) {
    if (root.numel() != 1) {
      throw Error(errc::invalid_root, "a root of " + std::to_string(root.numel()) +
                                          " elements needs a gradient; only for a single "
                                          "element 1 is taken");
    }
    c10::AutoGradMode const mode(options_.create_graph);
    gradient = at::ones_like(root, at::MemoryFormat::Preserve);
  }
  variable_list fitted;
  fitted.push_back(std::move(gradient));
  std::string const problem = fit_to_edges({edge}, fitted);
  if (!problem.empty()) throw Error(errc::invalid_root, "the root's " + problem);

  std::uint32_t const number = intern(edge.function.get());
  held_.push_back(edge.function);
  ++states_[number].dependencies;
  roots_.push_back(number);
  pending_roots_.push_back({number, edge.input_nr, std::move(fitted.front())});
  expand_found();
}

DISTGRAD_DECL void Executor::keep(at::Tensor const& leaf) {
  require_discovery();
  if (!leaf.defined() || !leaf.requires_grad() || !leaf.is_leaf()) {
    throw Error(errc::invalid_argument,
                "an input of a restricted pass must be a leaf that requires a gradient; for what "
                "lies between, use retain_grad() or a hook");
  }
  kept_.push_back(torch::autograd::impl::gradient_edge(leaf).function);
}

DISTGRAD_DECL void Executor::capture(node_ptr const& node) {
  require_discovery();
  std::uint32_t const number = intern(node.get());
  states_[number].kind = Kind::captured;
  captured_.push_back(number);
  held_.push_back(node);
  expand_found();
}

DISTGRAD_DECL variable_list Executor::take_captured(Node const& node) {
  std::uint32_t const number = index_.find(&node);
  if (number == detail::NodeIndex::none) return {};
  auto captured = std::move(states_[number].inputs);
  if (streams_) {
    gradients_.enter(*streams_);
    keep_on_streams(captured, *streams_);
  }
  return captured;
}

DISTGRAD_DECL std::vector<Node*> Executor::take_reached() { return std::exchange(reached_, {}); }

DISTGRAD_DECL void Executor::require_discovery() const {
  // Counts must be final before the first node runs, or it would run without some gradient.
  if (has_started_) throw Error(errc::internal, "discovery in a pass that has begun to run");
}

DISTGRAD_DECL std::uint32_t Executor::intern(Node* node) {
  auto const [number, is_new] = index_.insert(node);
  if (is_new) states_.push_back({node, {}, 0, 0});
  return number;
}

// Numbers are given breadth first, so the nodes not expanded yet are the tail of states_.
DISTGRAD_DECL void Executor::expand_found() {
  try {
    for (; expanded_ < states_.size(); ++expanded_) {
      expand_node(static_cast<std::uint32_t>(expanded_));
    }
  } catch (...) {
    is_failed_ = true;
    throw;
  }
}

DISTGRAD_DECL void Executor::expand_node(std::uint32_t number) {
  Node& node = *states_[number].node;
  states_[number].first_target = static_cast<std::uint32_t>(targets_.size());
  bool const ends_here = states_[number].kind == Kind::captured;
  for (Edge const& edge : node.next_edges()) {
    if (!edge.is_valid() || ends_here) {
      targets_.push_back(detail::NodeIndex::none);
      continue;
    }
    std::uint32_t const target = intern(edge.function.get());  // may move states_
    ++states_[target].dependencies;
    targets_.push_back(target);
  }
  if (node.next_edges().empty() && states_[number].kind == Kind::inner) {
    states_[number].kind = classify_end(node);
    if (states_[number].kind == Kind::boundary) reached_.push_back(&node);
  }
}

DISTGRAD_DECL Executor::Kind Executor::classify_end(Node& node) const {
  if (as_leaf(node)) return Kind::leaf;
  if (boundary_.is_boundary && boundary_.is_boundary(node)) return Kind::boundary;
  throw Error(errc::pass_failed, "node '" + node.name() +
                                     "' has no next nodes, but neither accumulates a leaf's "
                                     "gradient nor stands for another worker");
}

// --- what does not take part ---------------------------------------------------------------------

DISTGRAD_DECL std::vector<Node*> Executor::mark_roots() { return mark_from(roots_); }

DISTGRAD_DECL std::vector<Node*> Executor::mark(std::span<node_ptr const> sends) {
  std::vector<std::uint32_t> numbers;
  for (node_ptr const& send : sends) {
    auto const number = index_.find(send.get());
    if (number == detail::NodeIndex::none) {
      throw Error(errc::internal, "a send function takes part that was not expanded");
    }
    numbers.push_back(number);
  }
  return mark_from(std::move(numbers));
}

// Reads only what does not change when nodes run.
DISTGRAD_DECL std::vector<Node*> Executor::mark_from(std::vector<std::uint32_t> numbers) {
  std::vector<Node*> reached;
  marks_.resize(states_.size());
  while (!numbers.empty()) {
    auto const number = numbers.back();
    numbers.pop_back();
    if (marks_[number]) continue;
    marks_[number] = true;
    NodeState const& state = states_[number];
    auto const edges = edges_of(state);
    if (edges == 0 && boundary_.is_boundary && boundary_.is_boundary(*state.node)) {
      reached.push_back(state.node);
    }
    for (std::size_t i = 0; i < edges; ++i) {
      auto const target = targets_[state.first_target + i];
      if (target != detail::NodeIndex::none && !marks_[target]) numbers.push_back(target);
    }
  }
  return reached;
}

/// Discovery ends here.
DISTGRAD_DECL void Executor::begin() {
  if (std::exchange(has_started_, true)) return;
  if (options_.is_restricted) drop_unneeded();
  for (auto const number : captured_) {
    if (states_[number].dependencies == 0) drop(states_[number]);
  }
}

DISTGRAD_DECL void Executor::retire() {
  begin();
  marks_.resize(states_.size());
  for (std::size_t number = 0; number < states_.size(); ++number) {
    NodeState& state = states_[number];
    if (marks_[number] || state.kind == Kind::dropped) continue;
    for (std::size_t i = 0; i < edges_of(state); ++i) {
      auto const target = targets_[state.first_target + i];
      if (target != detail::NodeIndex::none && marks_[target]) pass_by(target);
    }
    drop(state);
  }
}

DISTGRAD_DECL void Executor::drop(NodeState& state) {
  state.kind = Kind::dropped;
  ++finished_;
}

/// What ends here and is of use.
DISTGRAD_DECL bool Executor::is_wanted(NodeState const& state) const {
  if (state.kind == Kind::leaf) {
    return std::ranges::any_of(kept_, [&](node_ptr const& n) { return n.get() == state.node; });
  }
  return state.kind == Kind::boundary || state.kind == Kind::send || state.kind == Kind::captured ||
         dynamic_cast<OpenEnded const*>(state.node) != nullptr;
}

// Depth first, so that a node's turn to be judged comes after that of all it leads to.
DISTGRAD_DECL void Executor::drop_unneeded() {
  enum class Need : std::uint8_t { unknown, no, yes };
  struct Step {
    std::uint32_t number, edge;
  };
  std::vector<Need> needs(states_.size(), Need::unknown);
  std::vector<Step> path;
  for (std::uint32_t start = 0; start < states_.size(); ++start) {
    if (needs[start] == Need::unknown) path.push_back({start, 0});
    while (!path.empty()) {
      auto& [number, edge] = path.back();
      NodeState& state = states_[number];
      if (edge < edges_of(state)) {
        auto const target = targets_[state.first_target + edge];
        if (target == detail::NodeIndex::none || needs[target] == Need::no) {
          ++edge;
        } else if (needs[target] == Need::yes) {
          needs[number] = Need::yes;
          ++edge;
        } else {
          path.push_back({target, 0});
        }
        continue;
      }
      if (is_wanted(state)) needs[number] = Need::yes;
      if (needs[number] != Need::yes) {
        needs[number] = Need::no;
        drop(state);
      }
      path.pop_back();
    }
  }
}

}  // namespace distgrad
