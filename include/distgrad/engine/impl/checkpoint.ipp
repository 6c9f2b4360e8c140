#pragma once
#include <distgrad/autograd/recv_rpc_backward.hpp>
#include <distgrad/engine/carrier.hpp>
#include <distgrad/engine/checkpoint.hpp>
#include <distgrad/rpc/handler_scope.hpp>

#include <algorithm>
#include <cstring>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/engine.h>

namespace distgrad {
namespace detail {

/// Stands between an argument and the graph of the second run, so that the graph ends here.
class CheckpointInput final : public Node {
 public:
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
  std::string name() const override { return "CheckpointInput"; }
};

inline bool is_differentiable(at::Tensor const& tensor) {
  return tensor.defined() && (tensor.is_floating_point() || tensor.is_complex());
}

inline variable_list differentiable_of(variable_list const& tensors) {
  variable_list those;
  std::ranges::copy_if(tensors, std::back_inserter(those), is_differentiable);
  return those;
}

// --- random numbers ------------------------------------------------------------------------------

inline at::Tensor random_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

inline void set_random_state(at::Tensor const& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

inline bool is_same_state(at::Tensor const& a, at::Tensor const& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

/// The default generator continues from `state`, and afterwards from where it was before.
class RandomStateScope {
 public:
  explicit RandomStateScope(at::Tensor const& state) {
    if (!state.defined()) return;
    before_ = random_state();
    set_random_state(state);
  }
  ~RandomStateScope() {
    if (before_.defined()) set_random_state(before_);
  }
  RandomStateScope(RandomStateScope const&) = delete;
  RandomStateScope& operator=(RandomStateScope const&) = delete;

 private:
  at::Tensor before_;
};

// --- the first run -------------------------------------------------------------------------------

DISTGRAD_DECL CheckpointBackward::CheckpointBackward(std::string function,
                                                     variable_list const& tensors)
    : function_(std::move(function)) {
  if (auto const* handler = HandlerScope::current()) called_by_ = handler->from();
  for (auto const& tensor : tensors) {
    tensors_.emplace_back(tensor, false);
    add_next_edge(tensor.defined() ? torch::autograd::impl::gradient_edge(tensor) : Edge());
  }
  if (tensors.empty()) add_next_edge(Edge());  // executors know ends of a graph by having none
}

DISTGRAD_DECL void CheckpointBackward::run_forward(unique_function<void()> run) {
  auto const before = random_state();
  {
    c10::AutoGradMode const off(false);
    OutsideContexts const outside;  // no call of the function may become part of one
    run();
  }
  if (!is_same_state(before, random_state())) random_state_ = before;
}

DISTGRAD_DECL void CheckpointBackward::attach(node_ptr const& node,
                                              std::vector<at::Tensor*> const& results,
                                              Again again) {
  auto& self = static_cast<CheckpointBackward&>(*node);
  self.again_ = std::make_shared<Again const>(std::move(again));
  for (auto* const result : results) {
    if (!is_differentiable(*result)) continue;
    *result = result->detach();  // it may be an argument, or what another worker returned
    torch::autograd::impl::set_gradient_edge(*result, {node, node->add_input_metadata(*result)});
  }
}

// --- the second run ------------------------------------------------------------------------------

/// Orders the calling thread's streams of all devices like those of the first gradient.
class ThreadStreams final : public StreamOrder {
 public:
  explicit ThreadStreams(variable_list const& gradients) {
    auto const is_away = [](auto const& g) { return g.defined() && !g.device().is_cpu(); };
    auto const one = std::ranges::find_if(gradients, is_away);
    if (one == gradients.end()) return;
    c10::impl::VirtualGuardImpl const guard(one->device().type());
    for (c10::DeviceIndex i = 0; i < guard.deviceCount(); ++i) {
      streams_.push_back(current_stream({guard.type(), i}));
    }
  }
  std::span<c10::Stream const> streams() const override { return streams_; }
  void order(c10::Stream before, c10::Stream after) override {
    auto event = record_event(before);
    block_stream(after, event);
  }
  void keep(c10::DataPtr const& memory, c10::Stream stream) override {
    keep_memory(memory, stream);
  }
  std::shared_ptr<DeviceMark> mark() override { return nullptr; }

 private:
  std::vector<c10::Stream> streams_;
};

/// Runs `part` below no pass of this library. Leaves get their gradients where libtorch puts them.
inline void run_alone(NestedPass& part, bool create_graph) {
  bool const is_plain = torch::autograd::Engine::get_default_engine().is_checkpoint_valid();
  auto const is_recv = [](Node const& node) {
    return dynamic_cast<RecvRpcBackward const*>(&node) != nullptr;
  };
  ThreadStreams streams(part.gradients);
  Executor executor({.retain_graph = true, .create_graph = create_graph},
                    {is_recv, [](Node& recv, variable_list g, Lives) { recv(std::move(g)); }},
                    streams.streams().empty() ? nullptr : &streams);
  for (auto const& end : part.ends) executor.capture(end);
  for (std::size_t i = 0; i < part.roots.size(); ++i) {
    executor.add_root(part.roots[i], part.gradients[i]);
  }
  run_in_carrier(true, create_graph, [&] { executor.run_ready(); });
  for (auto const& end : part.ends) part.found.push_back(executor.take_captured(*end));
  auto gradients = executor.take_gradients();
  if (!is_plain && !gradients.empty()) {
    throw Error(errc::not_supported,
                "a checkpointed function uses leaves that are not among its arguments: their "
                "gradients cannot be given to torch::autograd::grad() or backward(inputs)");
  }
  gradients.add_to_grad(create_graph);
}

DISTGRAD_DECL variable_list CheckpointBackward::apply(variable_list&& gradients) {
  variable_list found(num_outputs());
  if (std::ranges::none_of(gradients, [](auto const& g) { return g.defined(); })) return found;
  auto saved = unpack();
  NestedPass part{.outer = Pass::running(*this)};
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < saved.tensors.size(); ++i) {
    auto& tensor = saved.tensors[i];
    if (!tensor.defined()) continue;
    auto const edge = torch::autograd::impl::gradient_edge(tensor);
    tensor = tensor.detach();
    if (!edge.is_valid()) continue;
    node_ptr const end = make_node<CheckpointInput>();
    end->add_next_edge(edge);  // for whoever differentiates the gradients
    torch::autograd::impl::set_gradient_edge(tensor, {end, end->add_input_metadata(tensor)});
    part.ends.push_back(end);
    numbers.push_back(i);
  }
  bool const create_graph = c10::GradMode::is_enabled();
  auto const results = run_again(part.outer, *saved.again, std::move(saved.tensors));
  choose_roots(part, differentiable_of(results), gradients);
  if (part.roots.empty()) return found;
  part.outer ? part.outer->run_nested(part) : run_alone(part, create_graph);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!part.found[i].empty()) found[numbers[i]] = std::move(part.found[i].front());
  }
  return found;
}

DISTGRAD_DECL CheckpointBackward::Saved CheckpointBackward::unpack() {
  std::lock_guard lock(mutex_);
  TORCH_CHECK(!is_released_, torch::autograd::ERR_BACKWARD_TWICE);
  Saved saved{{}, again_};
  for (auto const& tensor : tensors_) saved.tensors.push_back(tensor.unpack());
  return saved;
}

DISTGRAD_DECL variable_list CheckpointBackward::run_again(Pass* pass, Again const& again,
                                                          variable_list tensors) const {
  at::ThreadLocalStateGuard const thread_state(thread_state_);
  c10::AutoGradMode const on(true);
  CallStateScope const context(pass ? &pass->recorder() : nullptr,
                               pass ? pass->context() : nullptr);
  std::optional<HandlerScope> handler;
  if (pass && called_by_) handler.emplace(pass->agent(), *called_by_);
  RandomStateScope const random(random_state_);
  return again(std::move(tensors));
}

DISTGRAD_DECL void CheckpointBackward::choose_roots(NestedPass& part, variable_list const& results,
                                                    variable_list const& gradients) const {
  bool is_same = results.size() == num_inputs();
  for (std::size_t i = 0; is_same && i < results.size(); ++i) {
    is_same = input_metadata(i).is_same_shape(results[i]);
  }
  if (!is_same) {
    throw Error(errc::pass_failed,
                "the checkpointed function did not return tensors of the same number and shapes "
                "when it ran for the second time; it must do the same each time");
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!gradients[i].defined() || !results[i].requires_grad()) continue;
    part.roots.push_back(results[i]);
    part.gradients.push_back(gradients[i]);
  }
}

DISTGRAD_DECL void CheckpointBackward::release_variables() {
  std::lock_guard lock(mutex_);
  is_released_ = true;
  for (auto& tensor : tensors_) tensor.reset_data();
  again_.reset();
}

}  // namespace detail
}  // namespace distgrad
