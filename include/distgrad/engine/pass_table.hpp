#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include <distgrad/autograd/context_table.hpp>
#include <distgrad/config.hpp>
#include <distgrad/engine/pass.hpp>

namespace distgrad {

/// The backward passes one worker takes part in: brings each message to its pass, starts
/// participants' parts when their first gradients arrive, and drops what comes for a pass that is
/// over. @threads safe: shared object.
class PassTable {
 public:
  /// @param watchdog_interval time between looks for a standstill.
  PassTable(RpcAgent& agent, ContextTable& contexts, std::chrono::nanoseconds watchdog_interval);

  /// Runs a pass that starts here, on the calling thread. @throws as `Context::backward`.
  void backward(std::shared_ptr<DistAutogradContext> const& context,
                std::span<at::Tensor const> roots, BackwardOptions const& options);

  /// Passes of a released context fail.
  void release(ContextId context);
  /// Every pass fails with `errc::closed`.
  void close();
  /// Looks after passes started here whose watchdog is due.
  void tick(time_point now);
  std::optional<time_point> next_tick() const;
  /// Passes that are running here.
  std::size_t size() const;

 private:
  using PassPtr = std::shared_ptr<Pass>;

  void on_gradient(WorkerId from, Message message);
  template <class Use>
  void with_pass(Message const& message, Use&& use);
  PassPtr find(PassId const& id) const;
  PassPtr find_or_join(PassId const& id, bool retain_graph, bool create_graph);
  PassPtr add(PassId const& id, std::shared_ptr<DistAutogradContext> context,
              Pass::Options options);
  std::vector<PassPtr> all() const;
  void finished(PassId const& id);
  void remember_finished(PassId const& id);

  RpcAgent& agent_;
  ContextTable& contexts_;
  std::chrono::nanoseconds watchdog_interval_;
  mutable std::mutex mutex_;
  std::unordered_map<PassId, PassPtr> passes_;
  /// Passes that are over, by context, so that a late message does not start them anew.
  std::unordered_map<ContextId, std::set<PassId>> finished_;
  std::optional<time_point> next_tick_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/pass_table.ipp>
#endif
