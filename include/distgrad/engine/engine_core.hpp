#pragma once
#include <memory>
#include <optional>

#include <distgrad/autograd/context_history.hpp>
#include <distgrad/autograd/context_table.hpp>
#include <distgrad/autograd/recorder.hpp>
#include <distgrad/config.hpp>
#include <distgrad/engine/pass_table.hpp>
#include <distgrad/rpc/agent.hpp>
#include <distgrad/rpc/shutdown_barrier.hpp>
#include <distgrad/rref/rref_table.hpp>

namespace distgrad {

/// Everything of an engine that does not depend on its policies: the rooms rpc, rref, autograd and
/// engine, wired together. @threads safe, where not said otherwise.
class EngineCore {
 public:
  struct Options {
    std::chrono::nanoseconds rpc_timeout;
    PassTable::Options passes;
  };

  EngineCore(std::shared_ptr<Host> host, Membership membership, Options options);

  RpcAgent& agent() { return agent_; }
  IdSource& ids() { return ids_; }
  ContextTable& contexts() { return contexts_; }
  Recorder& recorder() { return recorder_; }
  RRefTable& rrefs() { return *rrefs_; }
  PassTable& passes() { return passes_; }
  /// Empty unless somebody watches.
  ContextHistory const& context_history() const { return context_history_; }
  std::mutex& parameter_mutex() { return parameter_mutex_; }

  /// Whether `close` was not called yet.
  bool is_open() const;

  /// One turn of the I/O loop beside the transport: deadlines, watchdog, shutdown.
  void on_loop(time_point now);
  /// When the next turn is due even if no message comes.
  time_point next_turn();

  /// Says that this worker wants to leave. @return ready when the whole group is done, or with
  /// `errc::closed` when this engine ends before.
  Future<void> leave();
  /// For the error of a shutdown that took too long.
  std::string describe_missing();

  /// Ends all calls, passes and references with `errc::closed`.
  void close();

 private:
  void on_release(DistAutogradContext const& context);
  void on_shutdown_message(WorkerId from, Message const& message);
  void carry_out(std::vector<ShutdownBarrier::Send> const& sends);
  void give_up_leaving();
  bool is_idle() const;

  IdSource ids_;
  RpcAgent agent_;
  ContextTable contexts_;
  Recorder recorder_;
  std::shared_ptr<RRefTable> rrefs_;
  PassTable passes_;
  ContextHistory context_history_;

  std::mutex parameter_mutex_;

  mutable std::mutex shutdown_mutex_;
  ShutdownBarrier barrier_;
  std::optional<Promise<void>> left_;
  bool closed_ = false;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/engine_core.ipp>
#endif
