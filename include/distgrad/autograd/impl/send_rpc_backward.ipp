#pragma once
#include <distgrad/autograd/send_rpc_backward.hpp>

#include <torch/csrc/autograd/variable.h>

namespace distgrad {

DISTGRAD_DECL SendRpcBackward::SendRpcBackward(AutogradMessageId id, WorkerId to,
                                               std::span<at::Tensor const> tensors)
    : id_(id), to_(to) {
  for (auto const& tensor : tensors) {
    add_input_metadata(tensor);
    add_next_edge(torch::autograd::impl::gradient_edge(tensor));
  }
}

}  // namespace distgrad
