#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include <distgrad/autograd/context_table.hpp>
#include <distgrad/autograd/recorder.hpp>
#include <distgrad/config.hpp>
#include <distgrad/core/bounds.hpp>
#include <distgrad/engine/pass.hpp>

namespace distgrad {

/// The backward passes one worker takes part in: brings each message to its pass, starts
/// participants' parts when they are first heard of, and drops what comes for a pass that is over.
/// @threads safe: shared object.
class PassTable {
 public:
  struct Options {
    /// Time between looks for a standstill, in FAST mode.
    std::chrono::nanoseconds watchdog_interval = std::chrono::seconds(1);
    /// Time without progress after which workers ask one another what takes part, in SMART mode.
    std::chrono::nanoseconds discovery_delay = std::chrono::milliseconds(1);
  };

  PassTable(RpcAgent& agent, ContextTable& contexts, Recorder& recorder, Options options);

  /// Runs a pass that starts here, on the calling thread. @throws as `Context::backward`.
  void backward(ContextId context, std::span<at::Tensor const> roots,
                BackwardOptions const& options);
  /// The same for `Context::grad`.
  std::vector<at::Tensor> grad(ContextId context, std::span<at::Tensor const> roots,
                               std::vector<at::Tensor> const& inputs, BackwardOptions options);

  /// Passes of a released context fail.
  void release(ContextId context);
  /// Every pass fails with `errc::closed`.
  void close();
  /// Looks after passes started here whose watchdog is due.
  void tick(time_point now);
  std::optional<time_point> next_tick() const;
  /// Passes that are running here.
  std::size_t size() const;
  /// The same, as records; without an observer their times are meaningless.
  std::vector<PassRecord> records() const;

 private:
  using PassPtr = std::shared_ptr<Pass>;

  GradientMap run(ContextPtr const& context, std::span<at::Tensor const> roots,
                  BackwardOptions const& options, PassOptions pass_options,
                  NestedPass* nested = nullptr);
  void run_nested(NestedPass& part);
  void on_discover(WorkerId from, Message message);
  void on_gradient(WorkerId from, Message message);
  void on_failed(WorkerId from, Message message);
  void on_abort(WorkerId from, Message message);
  void on_query(WorkerId from, Message message);
  template <class Use>
  void with_pass(Message const& message, Use&& use);
  template <class Use>
  void join(Message const& message, Use&& use);
  PassPtr find(PassId const& id) const;
  PassPtr find_or_join(PassId const& id, PassOptions options);
  PassPtr add(PassId const& id, ContextPtr context, PassOptions options);
  std::vector<PassPtr> all() const;
  bool is_over(PassId const& id) const;
  void finished(PassId const& id, error_code const& fallback = {});
  void remember_finished(PassId const& id);
  WireError error_here(std::exception_ptr const& error) const;
  void answer(WorkerId to, FrameKind kind, PassId const& id,
              unique_function<void(Writer&)> write = nullptr);

  RpcAgent& agent_;
  ContextTable& contexts_;
  Recorder& recorder_;
  Options options_;
  mutable std::mutex mutex_;
  std::unordered_map<PassId, PassPtr> passes_;
  /// Passes that are over, by context, so that a late message does not start them anew: the newest
  /// of each initiator, and whatever is older than all of these.
  std::unordered_map<ContextId, std::map<WorkerId, std::set<std::uint32_t>>> finished_;
  static constexpr std::size_t max_finished = 1024;
  /// Nobody is left to end a pass that one of them started.
  std::set<WorkerId> lost_;
  std::optional<time_point> next_tick_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/pass_table.ipp>
#endif
