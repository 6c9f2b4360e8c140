#pragma once
#include <distgrad/engine/executor.hpp>

#include <algorithm>
#include <utility>

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <distgrad/core/error.hpp>
#include <distgrad/engine/input_buffer.hpp>
#include <distgrad/engine/node_call.hpp>

#include <ATen/ops/ones_like.h>

namespace distgrad {

DISTGRAD_DECL Executor::Executor(Options options, Boundary boundary)
    : options_(options), boundary_(std::move(boundary)) {
  thread_state_.set_grad_mode(options_.create_graph);
}

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
  return number == detail::NodeIndex::none ? variable_list() : std::move(states_[number].inputs);
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
  return state.kind == Kind::boundary || state.kind == Kind::send ||
         state.kind == Kind::captured || dynamic_cast<OpenEnded const*>(state.node) != nullptr;
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

// --- execution -----------------------------------------------------------------------------------

DISTGRAD_DECL void Executor::inject(Node const& send, variable_list gradients, Lives lives) {
  std::uint32_t const number = index_.find(&send);
  if (number == detail::NodeIndex::none || states_[number].kind != Kind::send) {
    throw Error(errc::bad_message,
                "gradients arrived for '" + send.name() + "', which is not part of this pass");
  }
  NodeState& state = states_[number];
  if (state.is_injected) {
    throw Error(errc::bad_message, "gradients arrived twice for '" + send.name() + "'");
  }
  if (!lives.empty() && lives.size() != gradients.size()) {
    throw Error(errc::bad_message, "gradients arrived for '" + send.name() +
                                       "' of which not all are said to be part of the pass or not");
  }
  std::string const problem = fit_to_inputs(send, gradients);
  if (!problem.empty()) {
    throw Error(errc::bad_message, "gradients arrived for '" + send.name() + "': " + problem);
  }
  state.is_injected = true;
  state.inputs = std::move(gradients);
  if (!lives.empty()) lives_[number] = std::move(lives);
  if (!is_failed_) make_ready(number);
}

DISTGRAD_DECL bool Executor::run_ready() {
  if (is_running_ || is_failed_) return false;
  std::size_t const finished_before = finished_;
  at::ThreadLocalStateGuard const thread_state(thread_state_);
  is_running_ = true;
  try {
    deliver_roots();
    run_loop();
  } catch (...) {
    if (current_ && torch::autograd::AnomalyMode::is_enabled()) {
      current_->metadata()->print_stack(current_->name());
    }
    is_failed_ = true;
    is_running_ = false;
    drop_work();
    throw;
  }
  is_running_ = false;
  return finished_ != finished_before;
}

DISTGRAD_DECL void Executor::run_loop() {
  while (!ready_.empty()) {
    if (is_cancelled_.load(std::memory_order_relaxed)) {
      is_failed_ = true;
      drop_work();
      return;
    }
    std::pop_heap(ready_.begin(), ready_.end());
    std::uint32_t const number = ready_.back().number;
    ready_.pop_back();
    run_node(number);
  }
}

DISTGRAD_DECL void Executor::deliver_roots() {
  begin();
  for (PendingRoot& root : std::exchange(pending_roots_, {})) {
    deliver(root.number, root.input_nr, std::move(root.gradient));
  }
}

DISTGRAD_DECL void Executor::deliver(std::uint32_t number, std::uint32_t input_nr,
                                     at::Tensor&& gradient) {
  NodeState& state = states_[number];
  if (state.kind == Kind::dropped) return;
  if (state.inputs.empty()) state.inputs.resize(state.node->num_inputs());
  if (state.kind == Kind::boundary) {
    Lives& lives = lives_[number];
    lives.resize(state.inputs.size());
    lives[input_nr] = true;
  }
  add_to_input(state.inputs[input_nr], std::move(gradient));
  count_delivery(number);
}

/// Nothing comes along this edge.
DISTGRAD_DECL void Executor::pass_by(std::uint32_t target) {
  if (target == detail::NodeIndex::none || states_[target].kind == Kind::dropped) return;
  if (--states_[target].dependencies == 0) make_ready(target);
}

DISTGRAD_DECL void Executor::pass_by_all(NodeState const& from) {
  for (std::size_t i = 0; i < edges_of(from); ++i) pass_by(targets_[from.first_target + i]);
}

// A list of one gradient is just what a node of one input is called with: no new list.
DISTGRAD_DECL void Executor::deliver_single(std::uint32_t number, variable_list&& gradient) {
  states_[number].inputs = std::move(gradient);
  count_delivery(number);
}

DISTGRAD_DECL void Executor::count_delivery(std::uint32_t number) {
  NodeState& state = states_[number];
  // Asked now, as the other references may be gone when the leaf's turn comes: two leaves that get
  // one tensor both copy it, and neither result depends on which was first.
  if (state.kind == Kind::leaf) state.is_shared = state.inputs[0].use_count() > 1;
  if (--state.dependencies == 0) make_ready(number);
}

// Latest node first, and a leaf before all (its sequence number is the highest): that is libtorch's
// order, and the order of a sum's terms follows from it.
DISTGRAD_DECL void Executor::make_ready(std::uint32_t number) {
  ready_.push_back({states_[number].node->sequence_nr(), number});
  std::push_heap(ready_.begin(), ready_.end());
}

DISTGRAD_DECL void Executor::run_node(std::uint32_t number) {
  NodeState& state = states_[number];
  variable_list inputs = std::move(state.inputs);
  Lives lives;
  if (state.kind == Kind::send || state.kind == Kind::boundary) {
    if (auto const entry = lives_.extract(number)) lives = std::move(entry.mapped());
  }
  current_ = state.node;
  if (c10::GradMode::is_enabled() != options_.create_graph) {
    c10::GradMode::set_enabled(options_.create_graph);  // the node before left it changed
  }
  switch (state.kind) {
    case Kind::leaf: finish_leaf(state, std::move(inputs)); break;
    case Kind::captured: finish_captured(state, std::move(inputs)); break;
    case Kind::boundary: finish_boundary(state, std::move(inputs), std::move(lives)); break;
    case Kind::send:
      route_send(state, call_node(*state.node, std::move(inputs), options_.retain_graph), lives);
      break;
    default:
      inputs.empty() ? pass_by_all(state)
                     : route(state, call_node(*state.node, std::move(inputs),
                                              options_.retain_graph));
  }
  ++finished_;
  last_ = std::exchange(current_, nullptr);
}

DISTGRAD_DECL void Executor::route(NodeState const& from, variable_list&& outputs) {
  auto const& edges = from.node->next_edges();
  std::uint32_t const* const targets = targets_.data() + from.first_target;
  if (outputs.size() == 1 && targets[0] != detail::NodeIndex::none) {
    NodeState const& to = states_[targets[0]];
    if (to.inputs.empty() && to.node->num_inputs() == 1 && to.kind != Kind::dropped &&
        to.kind != Kind::boundary) {
      return deliver_single(targets[0], std::move(outputs));
    }
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (targets[i] == detail::NodeIndex::none) continue;
    deliver(targets[i], edges[i].input_nr, std::move(outputs[i]));
  }
}

DISTGRAD_DECL void Executor::route_send(NodeState const& from, variable_list&& outputs,
                                        Lives const& lives) {
  if (lives.empty()) return route(from, std::move(outputs));
  auto const& edges = from.node->next_edges();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    auto const target = targets_[from.first_target + i];
    if (target == detail::NodeIndex::none) continue;
    lives[i] ? deliver(target, edges[i].input_nr, std::move(outputs[i])) : pass_by(target);
  }
}

DISTGRAD_DECL void Executor::finish_leaf(NodeState const& state, variable_list&& inputs) {
  if (inputs.empty()) return;
  auto& leaf = static_cast<torch::autograd::AccumulateGrad&>(*state.node);
  auto const* const arrived = inputs[0].unsafeGetTensorImpl();
  call_pre_hooks(leaf, inputs);
  bool const has_post_hooks = !leaf.post_hooks().empty();
  variable_list const kept = has_post_hooks ? inputs : variable_list();
  at::Tensor gradient = std::move(inputs.at(0));
  inputs.clear();
  if (gradient.defined() && leaf.variable.requires_grad()) {
    call_leaf_hooks(leaf, gradient);
    bool const is_shared = state.is_shared && gradient.unsafeGetTensorImpl() == arrived;
    std::size_t const references = is_shared ? 0 : 1 + has_post_hooks;
    gradients_.accumulate(leaf.variable, std::move(gradient), options_.create_graph, references);
    call_post_accumulate_hooks(leaf);
  }
  variable_list outputs;
  call_post_hooks(leaf, outputs, kept);
}

DISTGRAD_DECL void Executor::finish_boundary(NodeState const& state, variable_list&& inputs,
                                             Lives lives) {
  Node& node = *state.node;
  lives.resize(node.num_inputs());
  if (inputs.empty()) {  // but its other end waits
    variable_list nothing(lives.size());
    if (boundary_.on_gradients) {
      boundary_.on_gradients(node, std::move(nothing), std::move(lives));
    }
    return;
  }
  RECORD_FUNCTION_WITH_SCOPE(at::RecordScope::BACKWARD_FUNCTION, node.name(), {});
  call_pre_hooks(node, inputs);
  variable_list const kept = node.post_hooks().empty() ? variable_list() : inputs;
  if (boundary_.on_gradients) boundary_.on_gradients(node, std::move(inputs), std::move(lives));
  variable_list outputs;
  call_post_hooks(node, outputs, kept);
}

DISTGRAD_DECL void Executor::finish_captured(NodeState& state, variable_list&& inputs) {
  if (inputs.empty()) return;
  call_pre_hooks(*state.node, inputs);
  state.inputs = std::move(inputs);
}

DISTGRAD_DECL void Executor::drop_work() noexcept {
  ready_.clear();
  pending_roots_.clear();
  for (NodeState& state : states_) state.inputs.clear();
}

// --- what is left --------------------------------------------------------------------------------

DISTGRAD_DECL std::size_t Executor::partial() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(states_, [](NodeState const& state) {
    return !state.inputs.empty() && state.dependencies != 0;
  }));
}

DISTGRAD_DECL std::vector<Node*> Executor::awaited_sends() const {
  std::vector<Node*> sends;
  for (NodeState const& state : states_) {
    if (state.kind == Kind::send && !state.is_injected) sends.push_back(state.node);
  }
  return sends;
}

DISTGRAD_DECL std::vector<std::string> Executor::waiting_names(std::size_t limit) const {
  std::vector<std::string> names;
  for (NodeState const& state : states_) {
    if (state.kind == Kind::dropped) continue;
    bool const waits = state.dependencies != 0 || (state.kind == Kind::send && !state.is_injected);
    if (!waits) continue;
    if (names.size() == limit) break;
    names.push_back(state.node->name());
  }
  return names;
}

DISTGRAD_DECL std::string Executor::current_node_name() const {
  return current_ ? current_->name() : std::string();
}

DISTGRAD_DECL std::string Executor::last_node_name() const {
  return last_ ? last_->name() : std::string();
}

}  // namespace distgrad
