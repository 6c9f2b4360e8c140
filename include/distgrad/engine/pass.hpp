#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <distgrad/autograd/dist_autograd_context.hpp>
#include <distgrad/config.hpp>
#include <distgrad/core/deadline.hpp>
#include <distgrad/engine/backward_options.hpp>
#include <distgrad/engine/executor.hpp>
#include <distgrad/engine/pass_protocol.hpp>
#include <distgrad/rpc/agent.hpp>

namespace distgrad {

/// One worker's part in one backward pass: joins the executor, which knows the local graph, with
/// the protocol, which knows the other workers.
///
/// The initiator's part is driven by the thread that called backward. A participant's part is
/// driven on the compute pool, each time gradients arrived; one thread at a time.
/// @threads safe: shared object.
class Pass : public std::enable_shared_from_this<Pass> {
 public:
  struct Options {
    bool retain_graph = false;
    bool create_graph = false;
  };

  Pass(RpcAgent& agent, PassId id, std::shared_ptr<DistAutogradContext> context, Options options);

  PassId const& id() const { return id_; }
  bool is_initiator() const { return protocol_.is_initiator(); }

  /// Runs the whole pass on the calling thread. @throws RemoteError, Error.
  void run(std::span<at::Tensor const> roots, BackwardOptions const& options);

  /// Gradients arrived for a send function of this worker.
  void on_gradient(WorkerId from, AutogradMessageId message, variable_list gradients);
  void on_done(WorkerId from, PassStatus last);
  /// Something failed: here, on a participant, or by the loss of a peer.
  void fail(WireError error);
  void on_abort();
  void on_query(WorkerId from, std::uint32_t round);
  void on_status(WorkerId from, PassStatus status);
  /// Looks for a standstill; at the watchdog's interval.
  void tick();
  /// Whether `worker` is known to take part.
  bool involves(WorkerId worker) const;

  /// Called once, with the lock held by nobody, when the pass is over on this worker.
  void on_finished(unique_function<void()> handler) { on_finished_ = std::move(handler); }

 private:
  struct Delivery {
    AutogradMessageId message;
    variable_list gradients;
  };

  void drive();
  void run_slice(std::vector<Delivery> deliveries);
  void run_until_finished();
  bool wait_for_work(std::unique_lock<std::mutex>& lock);
  void inject(std::vector<Delivery> deliveries);
  void complete_local_part();
  void fail_here(std::exception_ptr const& error);
  void send_gradients(Node& recv, variable_list gradients);
  PassStatus status(std::uint32_t round) const;
  void carry_out(PassActions const& actions);
  void send(WorkerId to, FrameKind kind, unique_function<void(Writer&)> write = nullptr);
  void throw_if_failed() const;

  RpcAgent& agent_;
  PassId id_;
  std::shared_ptr<DistAutogradContext> context_;
  Options options_;
  Deadline deadline_;
  unique_function<void()> on_finished_;

  mutable std::mutex mutex_;  // guards what follows; the executor is its driver's alone
  std::condition_variable changed_;
  PassProtocol protocol_;
  std::vector<Delivery> inbox_;
  bool driving_ = false;
  bool expanded_ = false;
  Executor executor_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/pass.ipp>
#endif
