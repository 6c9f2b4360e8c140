#pragma once
#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <span>

#include <distgrad/config.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/tensor/compat.hpp>

namespace distgrad {

/// The recv function: the end of a receiver's graph, `grad_fn` of the tensors of one message. A
/// pass that reaches it sends the gradients to the worker where the tensors came from.
class RecvRpcBackward final : public Node {
 public:
  RecvRpcBackward(ContextId context, AutogradMessageId id, WorkerId from)
      : context_(context), id_(id), from_(from) {}

  /// Makes `node` the `grad_fn` of `tensors`, the first its input 0 and so on.
  /// @param tensors of a floating or complex type, without history.
  static void attach(node_ptr const& node, std::span<at::Tensor> tensors);

  ContextId context() const { return context_; }
  AutogradMessageId id() const { return id_; }
  /// The worker that waits for the gradients.
  WorkerId from() const { return from_; }

  /// Distributed passes do not call it. @throws Error `no_context`: an ordinary `backward()` came
  /// here.
  variable_list apply(variable_list&& gradients) override;
  std::string name() const override { return "RecvRpcBackward"; }

 private:
  ContextId context_;
  AutogradMessageId id_;
  WorkerId from_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/autograd/impl/recv_rpc_backward.ipp>
#endif
