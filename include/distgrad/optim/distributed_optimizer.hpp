#pragma once
#include <exception>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/engine/context.hpp>
#include <distgrad/engine/worker.hpp>
#include <distgrad/optim/local_optimizer.hpp>
#include <distgrad/rref/rref.hpp>

namespace distgrad {
namespace detail {

/// Options to be overwritten. Those of SGD insist on a learning rate.
template <class Options>
Options blank_options() {
  if constexpr (std::is_default_constructible_v<Options>) {
    return Options();
  } else {
    return Options(0.0);
  }
}

/// Makes the local part on the worker that owns `parameters`.
template <class Optimizer, class Options>
RRef<LocalOptimizer<Optimizer>> make_local_optimizer(
    std::vector<RRef<at::Tensor>> const& parameters, std::string const& options_bytes) {
  auto options = blank_options<Options>();
  load_options(options_bytes, options);
  std::vector<at::Tensor> tensors;
  for (auto const& parameter : parameters) tensors.push_back(parameter.local_value());
  return this_worker().make_rref(LocalOptimizer<Optimizer>(std::move(tensors), options));
}

DISTGRAD_DECL void rethrow_all(std::vector<std::exception_ptr> const& errors);

/// Waits for all futures. @throws the first error; when others failed too, their texts follow it.
template <class T>
void wait_for_all(std::vector<Future<T>> const& futures) {
  std::vector<std::exception_ptr> errors;
  for (auto const& future : futures) {
    future.wait();
    if (auto error = future.error()) errors.push_back(std::move(error));
  }
  rethrow_all(errors);
}

}  // namespace detail

/// Steps parameters where they live, with the gradients of a distributed autograd context.
///
/// Each worker that owns parameters gets an `Optimizer` of its own. A parameter without a gradient
/// in the context is left alone, and `.grad` is neither used nor changed.
///
///     DistributedOptimizer<torch::optim::SGD> opt(engine, parameters,
///     torch::optim::SGDOptions(0.1)); opt.step(ctx);
///
/// @tparam Optimizer any `torch::optim` optimizer, or a class of yours with its interface. The
/// workers must be of a program that uses the same `DistributedOptimizer`.
/// @threads safe: shared object. Steps of several trainers exclude each other on each worker, and
/// are not atomic across workers.
template <class Optimizer>
class DistributedOptimizer {
 public:
  /// @param parameters leaves that require gradients, on any workers, each once.
  /// @param options of the optimizer; derived from `torch::optim::OptimizerOptions`.
  /// @throws RemoteError what the constructor of a local optimizer threw; Error.
  template <class Options>
  DistributedOptimizer(Worker const& worker, std::vector<RRef<at::Tensor>> const& parameters,
                       Options const& options);

  /// One step on every worker that owns parameters; blocks until all are done.
  /// @throws RemoteError what a local step threw; Error `unknown_context`.
  void step(Context const& context) const { step(context.id()); }
  void step(ContextId context) const;

 private:
  std::vector<RRef<LocalOptimizer<Optimizer>>> locals_;
};

template <class Optimizer>
template <class Options>
DistributedOptimizer<Optimizer>::DistributedOptimizer(
    Worker const& worker, std::vector<RRef<at::Tensor>> const& parameters, Options const& options) {
  if (parameters.empty()) {
    throw Error(errc::invalid_argument, "a DistributedOptimizer needs at least one parameter");
  }
  std::map<WorkerId, std::vector<RRef<at::Tensor>>> by_owner;
  for (auto const& parameter : parameters) by_owner[parameter.owner().id].push_back(parameter);
  auto const bytes = detail::save_options(options);
  std::vector<Future<RRef<LocalOptimizer<Optimizer>>>> made;
  for (auto const& [owner, owned] : by_owner) {
    made.push_back(worker.template rpc_async<&detail::make_local_optimizer<Optimizer, Options>>(
        owner, owned, bytes));
  }
  detail::wait_for_all(made);
  for (auto const& local : made) locals_.push_back(local.get());
}

template <class Optimizer>
void DistributedOptimizer<Optimizer>::step(ContextId context) const {
  std::vector<Future<void>> steps;
  for (auto const& local : locals_) {
    steps.push_back(local.template rpc_async<&LocalOptimizer<Optimizer>::step>(context));
  }
  detail::wait_for_all(steps);
}

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/optim/impl/distributed_optimizer.ipp>
#endif
