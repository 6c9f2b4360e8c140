#pragma once
#include <distgrad/autograd/recv_rpc_backward.hpp>

#include <torch/csrc/autograd/variable.h>

#include <distgrad/core/error.hpp>

namespace distgrad {

DISTGRAD_DECL void RecvRpcBackward::attach(node_ptr const& node, std::span<at::Tensor> tensors) {
  for (auto& tensor : tensors) {
    auto const input_nr = node->add_input_metadata(tensor);
    torch::autograd::impl::set_gradient_edge(tensor, Edge(node, input_nr));
  }
}

DISTGRAD_DECL variable_list RecvRpcBackward::apply(variable_list&&) {
  throw Error(errc::no_context,
              "this tensor came from worker " + to_string(from_) +
                  " and its gradient belongs there; call backward() of the distributed autograd "
                  "context " +
                  to_string(context_) + " instead of the tensor's own");
}

}  // namespace distgrad
