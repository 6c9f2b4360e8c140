#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
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
#include <distgrad/rpc/agent.hpp>

namespace distgrad {

/// One worker's part in one backward pass: joins the executor, which knows the local graph, with
/// the protocol, which knows the other workers.
///
/// In SMART mode the part begins with discovery: the executor walks the graph from the roots, or
/// from the send functions another worker asked about, on the thread that brought them. Then
/// gradients move. The initiator's nodes run on the thread that called backward. A participant's
/// run on the compute pool, each time gradients arrived; one thread at a time.
/// @threads safe: shared object.
class Pass : public std::enable_shared_from_this<Pass> {
 public:
  Pass(RpcAgent& agent, Recorder& recorder, PassId id, ContextPtr context, PassOptions options);

  PassId const& id() const { return id_; }
  bool is_initiator() const { return protocol_.is_initiator(); }

  /// Runs the whole pass on the calling thread. @return this worker's gradients.
  /// @throws RemoteError, Error.
  GradientMap run(std::span<at::Tensor const> roots, BackwardOptions const& options);

  // What arrives from other workers.
  void on_discover(WorkerId from, detail::DiscoverFrame const& frame);
  void on_discovered(detail::DiscoveredFrame const& frame);
  void on_gradient(WorkerId from, detail::GradientFrame frame);
  void on_done(WorkerId from, PassStatus const& last);
  void on_commit();
  void on_committed(WorkerId from);
  void on_abort(WorkerId from);
  void on_aborted(WorkerId from, PassStatus last);
  void on_query(WorkerId from, std::uint32_t round);
  void on_status(WorkerId from, PassStatus const& status);

  /// Something failed, here or on a participant.
  void fail(WireError error);
  void on_peer_lost(WorkerId peer, error_code why);
  /// Ends the part without waiting for anybody.
  void abandon(WireError error);
  /// Looks for a standstill; at the watchdog's interval.
  void tick();

  /// Called once, with the lock held by nobody, when the pass is over on this worker.
  void on_finished(unique_function<void()> handler) { on_finished_ = std::move(handler); }

 private:
  struct Delivery {
    AutogradMessageId message;
    variable_list gradients;
  };

  template <class Event>
  void handle(Event&& event);
  PassActions stop_if(bool stop);

  // discovery
  void start(std::span<at::Tensor const> roots, BackwardOptions const& options);
  void await_discovery();
  Reached walk(std::vector<AutogradMessageId> const& messages);
  Reached reached();
  node_ptr send_function(AutogradMessageId message) const;

  // execution
  void drive();
  void run_slice(std::vector<Delivery> deliveries);
  void run_until_stopped();
  void send_gradients(Node& recv, variable_list gradients);
  AutogradMessageId record(WorkerId to, variable_list const& gradients);
  void merge();

  // failure
  void fail_here(std::exception_ptr const& error);
  void fail_late();
  void await_end();
  void throw_if_failed() const;
  std::string awaited_text() const;

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
  ContextPtr context_;
  PassOptions options_;
  Deadline deadline_;
  unique_function<void()> on_finished_;

  mutable std::mutex mutex_;  // guards what follows; in execution, the executor is its driver's
  std::condition_variable changed_;
  PassProtocol protocol_;
  std::vector<Delivery> inbox_;
  bool driving_ = false;
  bool was_driving_ = false;  // when it was told to stop
  bool expanded_ = false;
  Executor executor_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/pass.ipp>
#endif
