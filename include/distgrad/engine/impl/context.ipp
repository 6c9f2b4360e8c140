#pragma once
#include <distgrad/engine/context.hpp>
#include <distgrad/engine/engine_core.hpp>

namespace distgrad {

DISTGRAD_DECL Context::Context(EngineCore& core) : core_(core) {
  if (auto const active = core.contexts().current()) {
    throw Error(errc::context_active,
                "this thread is already in distributed autograd context " +
                    to_string(active->id()) +
                    "; let that one end first, or use another thread");
  }
  context_ = core.contexts().create();
  core.contexts().install(context_);
}

DISTGRAD_DECL Context::~Context() {
  if (core_.contexts().current() == context_) core_.contexts().install(nullptr);
  core_.recorder().release(context_->id());
}

DISTGRAD_DECL void Context::backward(std::vector<at::Tensor> const& roots,
                                     BackwardOptions const& options) {
  core_.contexts().get(id());
  if (roots.empty()) {
    throw Error(errc::invalid_root, "no tensors were given to backward");
  }
  if (!options.gradients.empty() && options.gradients.size() != roots.size()) {
    throw Error(errc::invalid_argument,
                "backward got " + std::to_string(roots.size()) + " roots but " +
                    std::to_string(options.gradients.size()) + " gradients; give one per root");
  }
  core_.passes().backward(context_, roots, options);
}

}  // namespace distgrad
