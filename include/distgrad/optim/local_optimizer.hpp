#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <torch/optim/optimizer.h>

#include <distgrad/config.hpp>
#include <distgrad/core/blocking.hpp>
#include <distgrad/engine/worker.hpp>

namespace distgrad {
namespace detail {

/// An optimizer's options as bytes, in libtorch's own archive format, and back.
std::string save_options(torch::optim::OptimizerOptions const& options);
void load_options(std::string const& bytes, torch::optim::OptimizerOptions& options);

/// Lends the gradients of a context to `.grad` for the duration of a step, and puts back what was
/// there. A parameter without a gradient in the context has none meanwhile, so that the optimizer
/// passes it over.
class LentGradients {
 public:
  LentGradients(std::vector<at::Tensor> const& parameters, DistAutogradContext const& context);
  ~LentGradients();
  LentGradients(LentGradients const&) = delete;
  LentGradients& operator=(LentGradients const&) = delete;

 private:
  std::vector<at::Tensor> const& parameters_;
  std::vector<at::Tensor> before_;
};

/// Optimizers that evaluate the loss again within a step (LBFGS).
template <class Options>
concept ReevaluatesLoss = requires(Options const& options) { options.max_iter(); };

}  // namespace detail

/// The part of a `DistributedOptimizer` on one worker: an ordinary optimizer over the parameters
/// that live there. @threads steps of one worker exclude each other, whichever optimizer they are
/// of: two may share a parameter.
template <class Optimizer>
class LocalOptimizer {
 public:
  template <class Options>
  LocalOptimizer(std::vector<at::Tensor> parameters, Options const& options)
      : parameters_(std::move(parameters)) {
    if constexpr (detail::ReevaluatesLoss<Options>) {
      if (options.max_iter() != 1) {
        throw Error(errc::not_supported,
                    "an optimizer that evaluates the loss several times within a step cannot be "
                    "distributed; set max_iter to 1 and call step for every iteration");
      }
    }
    optimizer_ = std::make_unique<Optimizer>(parameters_, options);
  }

  /// Steps the parameters that have a gradient in the context. Runs in a handler.
  void step(ContextId context) {
    auto& worker = this_worker();
    auto const part = worker.context_part(context);
    std::unique_lock lock(worker.parameter_mutex(), std::try_to_lock);
    if (!lock) {
      BlockingRegion region;
      lock.lock();
    }
    detail::LentGradients gradients(parameters_, *part);
    if constexpr (requires(Optimizer& o) { o.step(); }) {
      optimizer_->step();
    } else {  // wants the loss, which one iteration does not use
      optimizer_->step([] { return at::Tensor(at::zeros({})); });
    }
  }

 private:
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/optim/impl/local_optimizer.ipp>
#endif
