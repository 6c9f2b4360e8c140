#pragma once
#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <span>

#include <distgrad/config.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/tensor/compat.hpp>

namespace distgrad {

/// The send function: the root of a sender's graph to which the gradients of one message come
/// back. Nothing points to it; its next edges are those of the message's tensors.
///
/// It keeps no gradient: those of a pass wait in the pass. @threads as any node.
class SendRpcBackward final : public Node {
 public:
  /// @param tensors those of the message that require gradients, in message order.
  SendRpcBackward(AutogradMessageId id, WorkerId to, std::span<at::Tensor const> tensors);

  AutogradMessageId id() const { return id_; }
  /// The worker the gradients will come from.
  WorkerId to() const { return to_; }

  /// Passes the gradients on; undefined ones are legal.
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
  std::string name() const override { return "SendRpcBackward"; }

 private:
  AutogradMessageId id_;
  WorkerId to_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/autograd/impl/send_rpc_backward.ipp>
#endif
