#pragma once
#include <memory>

#include <distgrad/autograd/context_table.hpp>
#include <distgrad/config.hpp>
#include <distgrad/rpc/agent.hpp>
#include <distgrad/rpc/interceptor.hpp>
#include <distgrad/wire/extension.hpp>

namespace distgrad {
namespace detail {

/// The tensors of a received message that belong to its sender's graph.
/// @throws Error `bad_value` if one of them cannot have a gradient.
std::vector<at::Tensor> differentiable(ReceivedTensors const& received);

}  // namespace detail

/// Records calls in distributed autograd contexts: carries the context's id with every message,
/// gives the sender's graph a send function and the receiver's a recv function, and brings the
/// release of a context to every worker that knows it. @threads safe: shared object.
///
/// What a message's extension says, and what the receiver makes of tensors marked requires_grad:
///
/// | sender | extension | receiver's tensors |
/// |---|---|---|
/// | no context | plain | new leaves that require gradients |
/// | context, nothing to differentiate | context, id | constants |
/// | context, gradients needed | recorded, id, message id | outputs of a recv function |
/// | context, an answer with nothing to differentiate | constants | constants |
class Recorder final : public Interceptor {
 public:
  Recorder(RpcAgent& agent, ContextTable& contexts, IdSource& ids);

  void leaving(CallState const& state, WorkerId to, bool is_call,
               std::span<at::Tensor const> tensors, Writer& extends) override;
  CallState arriving(WorkerId from, bool is_call, ReceivedTensors& tensors,
                     Reader& extends) override;
  CallState current() const override { return contexts_.current(); }
  CallState install(CallState state) override;

  /// Records that `tensors` of this worker's graph leave for `to`. @return the message's new id.
  AutogradMessageId record_sent(DistAutogradContext& context, WorkerId to,
                                std::span<at::Tensor const> tensors);

  /// Forgets `context` here and on every worker that knows it.
  void release(ContextId context) noexcept;
  /// Called with each context this worker forgets, before its gradients go.
  void on_release(unique_function<void(DistAutogradContext const&)> handler) {
    on_release_ = std::move(handler);
  }

 private:
  RpcAgent& agent_;
  ContextTable& contexts_;
  IdSource& ids_;
  unique_function<void(DistAutogradContext const&)> on_release_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/autograd/impl/recorder.ipp>
#endif
