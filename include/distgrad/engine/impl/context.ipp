#pragma once
#include <distgrad/autograd/context_dot.hpp>
#include <distgrad/engine/context.hpp>
#include <distgrad/engine/engine_core.hpp>

namespace distgrad {

DISTGRAD_DECL Context::Context(EngineCore& core) : core_(core) {
  if (auto const active = core.contexts().current()) {
    throw Error(errc::context_active, "this thread is already in distributed autograd context " +
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
  core_.passes().backward(id(), roots, options);
}

DISTGRAD_DECL std::vector<at::Tensor> Context::grad(std::vector<at::Tensor> const& roots,
                                                    std::vector<at::Tensor> const& inputs,
                                                    BackwardOptions options) {
  return core_.passes().grad(id(), roots, inputs, std::move(options));
}

DISTGRAD_DECL std::string Context::dot() const {
  return to_dot({{core_.agent().membership().self().name, describe_graph(*context_)}});
}

}  // namespace distgrad
