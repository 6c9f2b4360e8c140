#pragma once
#include <distgrad/engine/worker.hpp>
#include <distgrad/observe/chrome_trace.hpp>
#include <distgrad/observe/prometheus.hpp>
#include <distgrad/rpc/handler_scope.hpp>

namespace distgrad {
namespace detail {

inline HandlerScope& running_handler() {
  if (auto* scope = HandlerScope::current()) return *scope;
  throw Error(errc::no_context,
              "this thread runs no function that was called remotely; use the engine itself");
}

}  // namespace detail

DISTGRAD_DECL EngineCore& Worker::core() const {
  if (!core_) throw Error(errc::closed, "the engine is not running");
  return *core_;
}

DISTGRAD_DECL void Worker::attach(std::shared_ptr<EngineCore> core) {
  core_ = std::move(core);
  core_->agent().services().add(*this);
}

DISTGRAD_DECL ContextId Worker::current_context() const {
  if (auto const context = core().contexts().current()) return context->id();
  throw Error(errc::no_context, "open one with engine.context()");
}

DISTGRAD_DECL DebugInfo Worker::debug_info() const {
  auto& c = core();
  return {.pending_calls = c.agent().caller().pending(),
          .call_deadlines = c.agent().caller().deadlines(),
          .owned_rrefs = c.rrefs().owned(),
          .used_rrefs = c.rrefs().used(),
          .forks = c.rrefs().forks(),
          .pending_users = c.rrefs().pending_users(),
          .autograd_contexts = c.contexts().size(),
          .backward_passes = c.passes().size()};
}

DISTGRAD_DECL std::string Worker::metrics_text() const {
  if (!observer()) {
    throw Error(errc::not_supported,
                "worker '" + name() + "' counts nothing; set EngineOptions::metrics");
  }
  auto const info = debug_info();
  GaugeReading const gauges[] = {
      {"calls_in_flight", "Calls this worker made that are not answered.", info.pending_calls},
      {"rrefs_owned", "Remote values that live on this worker.", info.owned_rrefs},
      {"rrefs_used", "References of this worker to values of others.", info.used_rrefs},
      {"rref_forks", "References of others to values of this worker.", info.forks},
      {"contexts", "Distributed autograd contexts this worker knows.", info.autograd_contexts},
      {"passes_in_flight", "Backward passes this worker takes part in.", info.backward_passes}};
  return prometheus_text(*observer(), gauges);
}

DISTGRAD_DECL std::string Worker::trace() const {
  if (!observer() || !observer()->trace()) {
    throw Error(errc::not_supported,
                "worker '" + name() +
                    "' records nothing; set EngineOptions::trace_events or the "
                    "variable DISTGRAD_TRACE");
  }
  return chrome_trace(*observer());
}

DISTGRAD_DECL std::optional<ContextGraph> Worker::graph_of(ContextId id) const {
  if (auto const context = core().contexts().find(id)) return describe_graph(*context);
  return core().context_history().find(id);
}

DISTGRAD_DECL Worker& this_worker() {
  return *detail::running_handler().agent().services().find<Worker>();
}

DISTGRAD_DECL WorkerInfo const& caller() {
  auto const& scope = detail::running_handler();
  return scope.agent().membership().resolve(scope.from());
}

}  // namespace distgrad
