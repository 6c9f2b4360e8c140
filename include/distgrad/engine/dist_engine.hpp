#pragma once
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include <distgrad/engine/engine_options.hpp>
#include <distgrad/engine/policy_host.hpp>
#include <distgrad/engine/poll_budget.hpp>
#include <distgrad/engine/trace_file.hpp>
#include <distgrad/engine/worker.hpp>
#include <distgrad/rendezvous/environment.hpp>
#include <distgrad/rendezvous/tcp_rendezvous.hpp>
#include <distgrad/serialize/serializer.hpp>

namespace distgrad {

/// One worker of a group: sends and serves remote calls, shares remote values, and runs its part
/// of distributed backward passes. Several may live in one process.
///
///     using Engine = distgrad::DistEngine<distgrad::TcpTransport, distgrad::CpuQueues>;
///     Engine engine({.name = "trainer", .rank = 0, .world_size = 3});
///
/// The constructor returns when the whole group has met. From then on the worker serves the calls
/// of others until `shutdown`. The destructor ends it at once, as `stop` does.
/// @tparam Transport a `TransportPolicy`: how messages reach a peer (docs/policies/transport.md).
/// @tparam Queues a `QueuePolicy`: where work waits for a device (docs/policies/queue.md).
/// @tparam Serializer a `SerializerPolicy`: how tensors become bytes (docs/policies/serializer.md).
/// @threads safe: shared object; `poll` one thread at a time.
template <class Transport, class Queues, class Serializer = TensorSerializer>
class DistEngine : public Worker {
  // The concepts in the line above would say "constraints not satisfied"; these say what is
  // missing.
  static_assert(sizeof(TransportCheck<Transport>) && sizeof(QueueCheck<Queues>) &&
                sizeof(SerializerCheck<Serializer>));
  using Host = PolicyHost<Transport, Queues, Serializer>;

 public:
  using Options = EngineOptions<Transport, Queues, Serializer>;

  /// Meets the group and begins to serve.
  /// @throws Error, within `options.rendezvous_timeout`: `invalid_name`, `invalid_argument`,
  /// `duplicate_name`, `duplicate_rank`, `world_size_mismatch`, `address_in_use`, `unreachable`,
  /// `timeout`, `bad_secret`, `unknown_worker` in a device map; the text says who and where.
  /// `limit_reached`: config.hpp. `invalid_argument`, too, if the file of DISTGRAD_TRACE cannot be
  /// written; engines without threads do not look at that variable.
  explicit DistEngine(Options options);
  ~DistEngine() { stop(); }
  DistEngine(DistEngine const&) = delete;
  DistEngine& operator=(DistEngine const&) = delete;

  /// An engine whose rank, world size and meeting point come from the variables RANK, WORLD_SIZE,
  /// MASTER_ADDR and MASTER_PORT (and DISTGRAD_JOB_SECRET), as launchers set them. Other options
  /// stay as given. @throws Error `invalid_argument`, naming the variable; as the constructor.
  static DistEngine from_environment(Options options = {});

  /// Ends the group together: serves until every worker has called `shutdown` and no call is under
  /// way any more, then stops. @param timeout zero means no limit.
  /// Does nothing on an engine that has ended.
  /// @throws Error `timeout`, naming who still works; the engine goes on serving then. `closed` if
  /// `stop` is called meanwhile.
  void shutdown(std::chrono::nanoseconds timeout = std::chrono::minutes(5));
  /// Ends this worker at once: its calls and passes fail with `errc::closed`; peers see it leave.
  /// Waits for handlers that run. Twice is once.
  void stop() noexcept;

  /// With queues that have no thread: takes in what has arrived, runs what is ready and looks after
  /// deadlines, within a budget. Half of its steps are for messages, so that neither they nor tasks
  /// wait for all of the others.
  PollResult poll(PollBudget const& budget = {})
    requires(Queues::is_inline)
  {
    return turns_->poll(budget);
  }
  /// What a loop of the program's own waits on, the way poll(2) takes it: as soon as one of these
  /// is ready, or `PollResult::next` has come, `poll` has something to do. Ask again after each
  /// `poll`: connections come and go. docs/embedded.md shows a whole loop.
  /// @throws Error when there are no more descriptors. @threads the one that calls `poll`.
  std::vector<pollfd> native_handles()
    requires(Queues::is_inline && WaitableTransport<Transport>)
  {
    return host_->transport.native_handles();
  }
  /// For what a transport tells about itself, as the statistics of a serial line.
  /// @threads what the function that is called there says. Lives as long as the engine.
  Transport const& transport() const { return host_->transport; }

 private:
  struct Turns;

  void write_trace() noexcept;

  std::shared_ptr<Host> host_;
  std::unique_ptr<Turns> turns_;
  std::thread io_thread_;
  std::once_flag stopped_;
  TraceFile trace_file_;
};

}  // namespace distgrad

#include <distgrad/engine/impl/dist_engine.ipp>
