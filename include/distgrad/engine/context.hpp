#pragma once
#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <set>
#include <string>
#include <vector>

#include <distgrad/autograd/dist_autograd_context.hpp>
#include <distgrad/config.hpp>
#include <distgrad/engine/backward_options.hpp>

namespace distgrad {

class EngineCore;

/// A distributed autograd context as a scope: calls made by this thread while it lives carry its
/// id, so that a backward pass can follow them to other workers. Handlers of those calls, what
/// they call, and continuations of their futures run in it too. Its end releases it on every
/// worker that knows it.
///
///     auto ctx = engine.context();
///     auto loss = engine.rpc_sync<layer>("ps0", x).sum();
///     ctx.backward({loss});
///     at::Tensor g = ctx.gradient(x);
///
/// @threads begin and end on the same thread; the rest is safe: shared object.
class Context {
 public:
  /// @throws Error `context_active` if the thread is in a context of this engine already.
  explicit Context(EngineCore& core);
  ~Context();
  Context(Context const&) = delete;
  Context& operator=(Context const&) = delete;

  ContextId id() const { return context_->id(); }

  /// Computes the gradients of `roots` with respect to every leaf on every worker that took part,
  /// and adds them to the context there; `.grad` stays as it is. Blocks.
  /// @param roots tensors of this worker that require gradients; not empty.
  /// @throws Error `invalid_root`, `unknown_context`, `pass_stuck`, `timeout`; RemoteError with the
  /// worker, the node's name and the original text of what failed anywhere.
  void backward(std::vector<at::Tensor> const& roots, BackwardOptions const& options = {});

  /// Computes the gradients of `roots` with respect to leaves of this worker and returns them, one
  /// per input, undefined where no path leads. Nothing is stored, on no worker. With
  /// `create_graph` they can be differentiated again: penalties on gradients, Hessian-vector
  /// products. Blocks.
  /// @param inputs leaves of this worker; not empty. `options.inputs`, `accumulate_grad` and
  /// `commit` have no meaning here.
  /// @throws as `backward`.
  std::vector<at::Tensor> grad(std::vector<at::Tensor> const& roots,
                               std::vector<at::Tensor> const& inputs, BackwardOptions options = {});

  /// The gradient of a leaf of this worker; undefined if no pass reached it.
  at::Tensor gradient(at::Tensor const& variable) const { return context_->gradient(variable); }
  /// This worker's leaves with their gradients, in the order in which passes reached them.
  std::vector<GradientMap::Entry> gradients() const { return context_->gradients(); }
  /// The workers this one exchanged calls with in the context.
  std::set<WorkerId> known_workers() const { return context_->known_workers(); }
  /// This worker's part of the graph, drawn in the DOT language. Other workers' parts come from
  /// their `Worker::graph_of(id())`; `to_dot` draws several in one picture.
  std::string dot() const;

 private:
  EngineCore& core_;
  std::shared_ptr<DistAutogradContext> context_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/context.ipp>
#endif
