#pragma once
// The only file that knows which libtorch it is compiled with. Wherever the compiler can see a
// difference it is asked by `requires`, in functions templated on the node's type: so a test can
// run the newer branch with a look-alike under an older libtorch.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/version.h>
#if __has_include(<ATen/detail/PrivateUse1HooksInterface.h>)
#include <ATen/detail/PrivateUse1HooksInterface.h>
#endif

namespace distgrad {

using torch::autograd::Edge;
using torch::autograd::InputMetadata;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// Version of libtorch, major * 100 + minor, for texts and for what `requires` cannot see.
inline constexpr int torch_version = TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR;

/// What owns a node: `std::shared_ptr<Node>` up to libtorch 2.12, `c10::intrusive_ptr<Node>` later.
using node_ptr = decltype(Edge::function);

/// Makes a node that belongs into an autograd graph: however long the chain of nodes behind it,
/// its release does not recurse.
/// @return `std::shared_ptr<T>` or `c10::intrusive_ptr<T>`, convertible to `node_ptr`. Take further
/// pointers from edges or copies; `shared_from_this` does not exist in newer versions.
template <class T, class... Args>
auto make_node(Args&&... args) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, T>) {
    return c10::make_intrusive<T>(std::forward<Args>(args)...);
  } else {
    // Found by the argument's namespace and only here: newer versions have no such function.
    auto release = [](auto* node) { deleteNode(node); };
    return std::shared_ptr<T>(new T(std::forward<Args>(args)...), release);
  }
}

/// Whether hooks of leaf tensors are hooks of their `AccumulateGrad` node (2.0 and later), or are
/// kept at the variable, to be called by whoever accumulates (1.13).
template <class N>
inline constexpr bool has_tensor_pre_hooks = requires(N& node) { node.tensor_pre_hooks(); };

/// Runs everything registered to be run before `node`, in libtorch's order, on the gradients that
/// reached it.
template <class N, class Gradients>
void call_pre_hooks(N& node, Gradients& gradients) {
  if constexpr (has_tensor_pre_hooks<N>) {
    for (auto const& hook : node.tensor_pre_hooks()) gradients = (*hook)(gradients);
    for (auto const& hook : node.retains_grad_hooks()) gradients = (*hook.second)(gradients);
  }
  for (auto const& hook : node.pre_hooks()) gradients = (*hook)(gradients);
}

/// Runs the hooks registered to be run after `node`.
/// @param outputs what the node returned; replaced by what the hooks return.
/// @param inputs what the node was called with.
template <class N, class Gradients>
void call_post_hooks(N& node, Gradients& outputs, Gradients const& inputs) {
  for (auto const& hook : node.post_hooks()) outputs = (*hook)(outputs, inputs);
}

/// Runs the tensor hooks of the leaf behind `node` where `call_pre_hooks` did not already.
/// @param gradient defined; replaced by what the hooks return.
template <class Leaf>
void call_leaf_hooks(Leaf& node, at::Tensor& gradient) {
  if constexpr (!has_tensor_pre_hooks<Leaf>) {
    for (auto const& hook : torch::autograd::impl::hooks(node.variable)) {
      variable_list one;
      one.push_back(std::move(gradient));  // moved, so that the gradient may still be stolen
      variable_list answer = (*hook)(one);
      gradient = std::move(answer.at(0));
    }
  }
}

/// Runs what was registered to be run after the leaf behind `node` accumulated (2.1 and later).
template <class Leaf>
void call_post_accumulate_hooks(Leaf& node) {
  if constexpr (requires { node.tensor_post_acc_grad_hooks(); }) {
    if (auto& hook = node.tensor_post_acc_grad_hooks()) (*hook)(node.variable);
  }
}

/// Whether the input is one that the forward function never produced: nothing is known about it.
template <class Metadata>
bool is_unused_input(Metadata const& metadata) {
  if constexpr (requires { metadata.was_default_constructed(); }) {
    return metadata.was_default_constructed();
  } else {
    return false;
  }
}

/// The dtype a gradient for this input is cast to; empty when any will do.
template <class Metadata>
std::optional<at::ScalarType> expected_dtype(Metadata const& metadata) {
  if constexpr (requires { metadata.grad_dtype(); }) {
    return metadata.grad_dtype();
  } else {
    return c10::typeMetaToScalarType(metadata.dtype());
  }
}

/// The device a node works on: that of its first input outside the host's memory, else the host.
inline at::Device node_device(Node const& node) {
  for (std::uint32_t i = 0; i < node.num_inputs(); ++i) {
    auto const device = node.input_metadata(i).device();
    if (!device.is_cpu()) return device;
  }
  return at::kCPU;
}

/// The streams the forward part of the node ran on, one for each device of its inputs; none for the
/// host's memory.
inline c10::SmallVector<c10::Stream, 2> node_streams(Node const& node) {
  c10::SmallVector<c10::Stream, 2> streams;
  for (std::uint32_t i = 0; i < node.num_inputs(); ++i) {
    auto const& metadata = node.input_metadata(i);
    auto const device = metadata.device();
    if (device.is_cpu()) continue;
    auto const is_known = [&](c10::Stream stream) { return stream.device() == device; };
    if (std::ranges::none_of(streams, is_known)) streams.push_back(metadata.stream());
  }
  return streams;
}

/// Says that the program has devices of a type of its own (`PrivateUse1`), once in a program.
/// Newer versions ask before their engine takes a stream of such a device; older cannot be told.
inline void announce_own_devices() {
#if __has_include(<ATen/detail/PrivateUse1HooksInterface.h>)
  // Virtual in some versions only, so not marked as overriding.
  struct Hooks : at::PrivateUse1HooksInterface {
    bool isBuilt() const { return true; }
    bool isAvailable() const { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const { return true; }
  };
  at::RegisterPrivateUse1HooksInterface(new Hooks);    // libtorch has no way to take it back
  c10::register_privateuse1_backend("privateuseone");  // by which it goes already
#endif
}

/// The node that accumulates a leaf's gradient; null for every other node.
inline torch::autograd::AccumulateGrad* as_leaf(Node& node) {
  return dynamic_cast<torch::autograd::AccumulateGrad*>(&node);
}

}  // namespace distgrad
