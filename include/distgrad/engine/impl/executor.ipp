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
#include <distgrad/queue/stream_scope.hpp>
#include <distgrad/serialize/keep_on_streams.hpp>

namespace distgrad {

DISTGRAD_DECL Executor::Executor(Options options, Boundary boundary, StreamOrder* streams)
    : options_(options), boundary_(std::move(boundary)), streams_(streams) {
  thread_state_.set_grad_mode(options_.create_graph);
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
  if (streams_) {
    for (auto const& gradient : gradients) hand_over(gradient, send);
  }
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
  std::optional<StreamScope> scope;
  if (streams_) {
    if (auto const stream = hand_over(gradient, *state.node)) scope.emplace(*stream);
  }
  add_to_input(state.inputs[input_nr], std::move(gradient));
  count_delivery(number);
}

/// Called where `gradient` was made, so that it lives on its device's current stream: makes it
/// ready for the stream on which `to` will use it. @return that one; nothing on the CPU.
DISTGRAD_DECL std::optional<c10::Stream> Executor::hand_over(at::Tensor const& gradient,
                                                             Node const& to) {
  if (!gradient.defined() || gradient.device().is_cpu()) return std::nullopt;
  auto const from = current_stream(gradient.device());
  for (auto const& stream : node_streams(to)) {
    if (stream.device() != from.device()) continue;
    if (stream != from) {
      streams_->order(from, stream);
      keep_tensor(gradient, stream, *streams_);
    }
    return stream;
  }
  return from;
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
  if (streams_) hand_over(gradient.front(), *states_[number].node);
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
  std::optional<StreamScope> scope;
  if (streams_) scope.emplace(node_streams(*state.node));
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
      inputs.empty()
          ? pass_by_all(state)
          : route(state, call_node(*state.node, std::move(inputs), options_.retain_graph));
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
    if (streams_) finish_use(gradient);
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
  if (streams_) std::ranges::for_each(inputs, [this](auto& input) { finish_use(input); });
  state.inputs = std::move(inputs);
}

/// A gradient stays where it is until somebody takes it.
DISTGRAD_DECL void Executor::finish_use(at::Tensor const& gradient) {
  if (!gradient.defined() || gradient.device().is_cpu()) return;
  if (has_found_) gradients_.enter(*streams_);
  gradients_.add_use(current_stream(gradient.device()));
}

DISTGRAD_DECL GradientMap Executor::take_gradients() {
  if (streams_) gradients_.enter(*streams_);
  return std::exchange(gradients_, {});
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
