#pragma once
#include <algorithm>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <distgrad/config.hpp>
#include <distgrad/engine/context.hpp>
#include <distgrad/engine/engine_core.hpp>
#include <distgrad/rpc/call_target.hpp>
#include <distgrad/rref/rref.hpp>

namespace distgrad {

/// A string as a template argument.
template <std::size_t N>
struct FixedString {
  char text[N]{};
  constexpr FixedString(char const (&from)[N]) { std::copy_n(from, N, text); }
};

/// Counts of what an engine holds, for tests, logs and metrics.
struct DebugInfo {
  std::size_t pending_calls = 0;
  std::size_t call_deadlines = 0;
  std::size_t owned_rrefs = 0;
  std::size_t used_rrefs = 0;
  std::size_t forks = 0;
  std::size_t pending_users = 0;
  std::size_t autograd_contexts = 0;
  std::size_t backward_passes = 0;
};

/// One worker of a group, seen from inside its process: what an engine offers, whatever its
/// policies. `DistEngine` is one; a handler gets its own from `this_worker()`.
/// @threads safe: shared object.
class Worker {
 public:
  WorkerInfo const& info() const { return core().agent().membership().self(); }
  std::string const& name() const { return info().name; }
  int rank() const { return static_cast<int>(info().id.value); }
  /// All workers in the order of ranks, this one included.
  std::span<WorkerInfo const> group() const { return core().agent().membership().group(); }
  /// @throws Error `unknown_worker`.
  WorkerInfo const& find(WorkerRef const& worker) const {
    return core().agent().membership().resolve(worker);
  }

  /// Runs `F` on the target's worker with copies of `args`, and waits for its result.
  /// @tparam F a function, a lambda without captures, or a member function of a value that lives
  /// there (its first argument is the `RRef`).
  /// @param target a name, a rank, or `within(timeout, worker)`.
  /// @throws RemoteError what `F` threw; Error `timeout`, `peer_lost`, `unknown_worker`,
  /// `unsupported_tensor`, `closed`.
  /// @cost two messages; no copy of a dense tensor but the network's own.
  template <auto F, class... Args>
  detail::CallResult<F> rpc_sync(CallTarget const& target, Args const&... args) const {
    auto future = call<F>(target, args...);
    if constexpr (std::is_void_v<detail::CallResult<F>>) {
      future.get();
    } else {
      return std::move(future.get());
    }
  }

  /// The same without waiting: returns a `Future`, or, when one more argument is given, completes
  /// that completion token with `(std::exception_ptr, result)`.
  template <auto F, class... Args>
  auto rpc_async(CallTarget const& target, Args&&... args) const {
    constexpr std::size_t parameters = parameter_count<F>();
    if constexpr (sizeof...(Args) == parameters + 1) {
      return with_token<F>(target, std::forward_as_tuple(std::forward<Args>(args)...),
                           std::make_index_sequence<parameters>());
    } else {
      return call<F>(target, args...);
    }
  }

  /// Runs `F` on the target's worker and leaves the result there. Does not wait: errors of `F`
  /// arrive where the value is used.
  template <auto F, class... Args>
  RRef<detail::CallResult<F>> remote(CallTarget const& target, Args const&... args) const {
    return detail::create_remote<F>(core().rrefs(), target, args...);
  }

  /// A reference, for sharing, to a value that lives on this worker.
  template <class T>
  RRef<std::decay_t<T>> make_rref(T&& value) const {
    using Value = std::decay_t<T>;
    return RRef<Value>(core().rrefs().make_local(
        ErasedValue::of(std::make_shared<Value>(std::forward<T>(value)))));
  }

  /// Gives `F` the name `Name` on this worker, for programs whose workers are built differently.
  template <FixedString Name, auto F>
  void define() const {
    core().agent().registry().define(Name.text, detail::Registered<F>::function);
  }

  /// Opens a distributed autograd context on this thread.
  /// @throws Error `context_active`.
  Context context() const { return Context(core()); }
  /// The id of this thread's context. @throws Error `no_context` outside of any.
  ContextId current_context() const;
  /// Runs a pass in a context by its id: from a handler, where the caller's context is
  /// `current_context()`. @throws as `Context::backward`, and Error `unknown_context`.
  void backward(ContextId context, std::vector<at::Tensor> const& roots,
                BackwardOptions const& options = {}) const {
    core().passes().backward(context, roots, options);
  }
  /// The same for `Context::grad`.
  std::vector<at::Tensor> grad(ContextId context, std::vector<at::Tensor> const& roots,
                               std::vector<at::Tensor> const& inputs,
                               BackwardOptions options = {}) const {
    return core().passes().grad(context, roots, inputs, std::move(options));
  }
  bool has_context(ContextId id) const { return core().contexts().find(id) != nullptr; }
  /// This worker's part of a context. @throws Error `unknown_context`.
  std::shared_ptr<DistAutogradContext> context_part(ContextId id) const {
    return core().contexts().get(id);
  }

  std::chrono::nanoseconds rpc_timeout() const { return core().agent().rpc_timeout(); }
  /// For later calls. @throws Error `invalid_argument` if negative; zero means no limit.
  void set_rpc_timeout(std::chrono::nanoseconds timeout) const {
    core().agent().set_rpc_timeout(timeout);
  }
  DebugInfo debug_info() const;
  /// Whether the engine serves: it has not been stopped.
  bool is_running() const { return core().is_open(); }

  /// What is counted of this engine; null unless `EngineOptions::metrics` or a trace asks for it.
  Observer const* observer() const { return core().agent().observer(); }
  /// The same as text for Prometheus (exposition format 0.0.4). Takes no lock that a call or a pass
  /// waits for longer than for a copy of a few numbers.
  /// @throws Error `not_supported` without `EngineOptions::metrics`.
  std::string metrics_text() const;
  /// The calls and passes that ended here so far, as JSON for Perfetto and chrome://tracing; see
  /// `chrome_trace`. Of several workers, `scripts/trace-merge` makes one.
  /// @throws Error `not_supported` without `EngineOptions::trace_events`.
  std::string trace() const;
  /// This worker's part in the passes that run now. Times only with `EngineOptions::metrics`.
  std::vector<PassRecord> passes() const { return core().passes().records(); }
  /// This worker's parts of the contexts it has now.
  std::vector<std::shared_ptr<DistAutogradContext>> contexts() const {
    return core().contexts().all();
  }
  /// This worker's part of the graph of a context: of one it has now, or, with
  /// `EngineOptions::metrics`, of one of `recent_contexts`.
  std::optional<ContextGraph> graph_of(ContextId id) const;
  /// Contexts that were released here and whose graph is still known, oldest first.
  std::vector<ContextId> recent_contexts() const { return core().context_history().ids(); }
  /// The functions this worker can be asked to run, by the names calls use.
  std::vector<std::string> functions() const { return core().agent().registry().names(); }
  /// Held by whoever changes parameters that live on this worker.
  std::mutex& parameter_mutex() const { return core().parameter_mutex(); }

 protected:
  Worker() = default;
  ~Worker() = default;
  EngineCore& core() const;
  std::shared_ptr<EngineCore> const& shared_core() const { return core_; }
  void attach(std::shared_ptr<EngineCore> core);

 private:
  template <auto F>
  static constexpr std::size_t parameter_count() {
    using Shape = detail::FunctionShape<F>;
    return detail::arity<typename Shape::Parameters> + !std::is_void_v<typename Shape::Class>;
  }

  template <auto F, class... Args>
  Future<detail::CallResult<F>> call(CallTarget const& target, Args const&... args) const {
    if constexpr (std::is_void_v<typename detail::FunctionShape<F>::Class>) {
      return detail::call_async<F>(core().agent(), target, args...);
    } else {
      return call_member<F>(target, args...);
    }
  }
  template <auto F, class Object, class... Args>
  Future<detail::CallResult<F>> call_member(CallTarget const& target, RRef<Object> const& object,
                                            Args const&... args) const {
    if (find(target.worker()) != object.owner()) {
      throw Error(errc::not_owner, "the object lives on worker '" + object.owner().name +
                                       "'; call its member function there");
    }
    return object.template rpc_async<F>(args...);
  }
  template <auto F, class Args, std::size_t... I>
  auto with_token(CallTarget const& target, Args args, std::index_sequence<I...>) const {
    auto future = call<F>(target, std::get<I>(args)...);
    return detail::async_complete(std::move(future), std::get<sizeof...(I)>(std::move(args)));
  }

  std::shared_ptr<EngineCore> core_;
};

/// The worker that runs the calling handler. @throws Error `no_context` outside of any handler.
DISTGRAD_DECL Worker& this_worker();
/// Who called the running handler. @throws Error `no_context` outside of any handler.
DISTGRAD_DECL WorkerInfo const& caller();

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/worker.ipp>
#endif
