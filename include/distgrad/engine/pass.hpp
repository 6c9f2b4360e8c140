#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <distgrad/autograd/dist_autograd_context.hpp>
#include <distgrad/autograd/recorder.hpp>
#include <distgrad/config.hpp>
#include <distgrad/core/deadline.hpp>
#include <distgrad/engine/backward_options.hpp>
#include <distgrad/engine/executor.hpp>
#include <distgrad/engine/pass_frames.hpp>
#include <distgrad/engine/pass_protocol.hpp>
#include <distgrad/observe/observer.hpp>
#include <distgrad/rpc/agent.hpp>

namespace distgrad {

class Pass;

/// A pass for one node of another pass: it differentiates a graph that the node has just made.
struct NestedPass {
  Pass* outer = nullptr;
  std::vector<at::Tensor> roots = {};
  std::vector<at::Tensor> gradients = {};
  /// Where it ends, and afterwards what came there: as `Executor::capture`.
  std::vector<node_ptr> ends = {};
  std::vector<variable_list> found = {};
};

/// One worker's part in one backward pass: joins the executor, which knows the local graph, with
/// the protocol, which knows the other workers.
///
/// The initiator's nodes run on the thread that called backward. A participant's run on the compute
/// pool, each time gradients arrived; one thread at a time. Discovery walks the graph on the thread
/// that brought the question.
///
/// In SMART mode, what takes part is known before the gradients move, or found out meanwhile:
/// - overlapped, a context's first pass: nodes run as in FAST mode, where every call of the context
///   is taken to take part. If that does not lead to the end soon, discovery finds out what really
///   does, and the rest is dropped. No pass waits for a question that way when every result is
///   used.
/// - otherwise discovery comes first. So a context with many passes walks only what a pass needs.
/// @threads safe: shared object.
class Pass : public std::enable_shared_from_this<Pass> {
 public:
  /// @param patience how long the initiator of an overlapped pass waits for progress before it
  /// starts discovery.
  Pass(RpcAgent& agent, Recorder& recorder, PassId id, ContextPtr context, PassOptions options,
       std::chrono::nanoseconds patience);

  PassId const& id() const { return id_; }
  PassOptions options() const { return options_; }
  ContextPtr const& context() const { return context_; }
  RpcAgent& agent() const { return agent_; }
  Recorder& recorder() const { return recorder_; }
  bool is_initiator() const { return protocol_.is_initiator(); }

  /// Runs the whole pass on the calling thread. @return this worker's gradients.
  /// @throws RemoteError, Error.
  GradientMap run(std::span<at::Tensor const> roots, BackwardOptions const& options);

  /// The pass that runs `node` on the calling thread right now; null if none of this library does.
  static Pass* running(Node const& node);
  /// For that node: runs `part`, which blocks. The gradients of leaves go where this pass's go.
  void run_nested(NestedPass& part) { on_nested_(part); }
  void on_nested(unique_function<void(NestedPass&)> handler) { on_nested_ = std::move(handler); }
  /// A participant of a nested pass learns which pass all is for. What that one alone may publish
  /// goes to its part on this worker. @param outermost null if it has none here.
  /// @throws Error `not_supported` if nobody could hold gradients back until the commit.
  void belong_to(PassId const& id, std::shared_ptr<Pass> const& outermost);
  /// Begins and ends what `run_nested` asked for.
  void nest(NestedPass const& part);
  void finish_nested(NestedPass& part, GradientMap&& gradients);
  /// Until `BackwardOptions::timeout`; zero if there is no limit here.
  std::chrono::nanoseconds time_left() const;

  // What arrives from other workers.
  void on_discover(WorkerId from, detail::DiscoverFrame const& frame);
  void on_discovered(detail::DiscoveredFrame const& frame);
  void on_release();
  void on_gradient(WorkerId from, detail::GradientFrame frame);
  void on_done(WorkerId from, PassStatus const& last);
  void on_commit();
  void on_committed(WorkerId from);
  void on_failed(WorkerId from, WireError error);
  void on_abort(WorkerId from);
  void on_aborted(WorkerId from, PassStatus last);
  void on_query(WorkerId from, std::uint32_t round);
  void on_status(WorkerId from, PassStatus const& status);

  /// Something failed here.
  void fail(WireError error);
  void on_peer_lost(WorkerId peer, error_code why);
  /// Ends the part without waiting for anybody.
  void abandon(WireError error);
  /// Looks for a standstill; at the watchdog's interval.
  void tick();

  /// Called once, with the lock held by nobody, when the pass is over on this worker.
  void on_finished(unique_function<void()> handler) { on_finished_ = std::move(handler); }

  /// For whoever watches: the part as it is now. Only with an observer.
  PassRecord record() const;
  /// The part is over: tells whoever watches, and the log if it failed.
  /// @param fallback why, if the protocol knows of no error.
  void end_watch(error_code const& fallback);

 private:
  struct Delivery {
    AutogradMessageId message;
    variable_list gradients;
    Lives lives;
    std::shared_ptr<DeviceMark> arrived;  // null without devices
  };
  /// What a driver shall do next.
  struct Work {
    std::vector<Delivery> deliveries;
    bool retires = false;
  };

  template <class Event>
  void handle(Event&& event);
  PassActions stop_if(bool stop);
  void retire();
  void stop_nested();

  // discovery
  void start(std::span<at::Tensor const> roots, BackwardOptions const& options);
  void await_discovery();
  void join();
  bool expects_to_use_all();
  PassActions start_discovery();
  Reached walk(std::vector<AutogradMessageId> const& messages);
  Reached follow(std::vector<Node*> nodes);
  std::vector<Node*> explore(std::vector<node_ptr> const& sends);
  node_ptr send_function(AutogradMessageId message) const;

  // execution
  void drive();
  bool has_work() const { return !inbox_.deliveries.empty() || inbox_.retires; }
  void wake_driver(std::unique_lock<std::mutex>& lock, std::uint64_t priority);
  void try_slice(Work& work);
  void run_slice(Work& work);
  void run_until_stopped();
  std::optional<Work> await_work();
  void send_gradients(Node& recv, variable_list gradients, Lives lives);
  AutogradMessageId record(WorkerId to, variable_list const& gradients);
  /// Whether gradients become visible when this pass is complete: not if another one decides.
  bool publishes() const {
    return !options_.is_nested || (!options_.is_restricted && !options_.commits_globally);
  }
  GradientMap take_gradients();
  void adopt(GradientMap&& gradients);
  void merge();

  // failure
  void fail_here(std::exception_ptr const& error);
  void fail_late();
  void await_end();
  void throw_if_failed() const;
  std::string awaited_text() const;
  void log_failure(WireError const& error) const;

  template <class Condition>
  bool wait(std::unique_lock<std::mutex>& lock, Deadline deadline, Condition condition);
  PassStatus status(std::uint32_t round) const;
  void carry_out(PassActions const& actions);
  void send(WorkerId to, FrameKind kind, unique_function<void(Writer&)> write = nullptr);
  void send(WorkerId to, Message message);
  WorkerId self() const { return agent_.membership().self().id; }
  std::string const& self_name() const { return agent_.membership().self().name; }

  RpcAgent& agent_;
  Recorder& recorder_;
  PassId id_;
  PassId outermost_id_;  // of a nested pass; else its own
  ContextPtr context_;
  PassOptions options_;
  std::chrono::nanoseconds patience_;
  Deadline deadline_;
  unique_function<void()> on_finished_;
  unique_function<void(NestedPass&)> on_nested_;

  mutable std::mutex mutex_;  // guards what follows; in execution, the executor is its driver's
  std::condition_variable changed_;
  PassProtocol protocol_;
  Work inbox_;
  bool driving_ = false;
  PassProbe probe_;
  bool was_driving_ = false;  // when it was told to stop
  bool expanded_ = false;
  std::weak_ptr<Pass> nested_;  // the one a node of this pass waits for
  GradientMap adopted_;         // from nested passes of other workers
  std::weak_ptr<Pass> outermost_;
  Executor executor_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/pass.ipp>
#include <distgrad/engine/impl/pass_end.ipp>
#include <distgrad/engine/impl/pass_messages.ipp>
#endif
