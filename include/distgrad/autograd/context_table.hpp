#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <distgrad/autograd/dist_autograd_context.hpp>
#include <distgrad/config.hpp>
#include <distgrad/core/bounds.hpp>
#include <distgrad/core/ids.hpp>

namespace distgrad {

using ContextPtr = std::shared_ptr<DistAutogradContext>;

/// The distributed autograd contexts one worker knows. @threads safe: shared object.
class ContextTable {
 public:
  /// @param streams orders the devices of the engine; null if there are none.
  explicit ContextTable(IdSource& ids, std::shared_ptr<StreamOrder> streams = nullptr)
      : ids_(ids), streams_(std::move(streams)) {}

  /// @throws Error `limit_reached`, here and below beyond DISTGRAD_MAX_CONTEXTS.
  ContextPtr create();
  /// The context, made here if this worker did not know it.
  /// @throws Error `unknown_context` if it was released before: a late message must not bring it
  /// back to life.
  ContextPtr get_or_create(ContextId id);
  /// Null if this worker does not have it.
  ContextPtr find(ContextId id) const;
  /// @throws Error `unknown_context`.
  ContextPtr get(ContextId id) const;
  /// Forgets a context for good. @return it, or null if this worker did not have it.
  ContextPtr release(ContextId id);
  std::size_t size() const;
  /// Those this worker has now.
  std::vector<ContextPtr> all() const;

  /// The calling thread's context of this table, or null.
  ContextPtr current() const;
  /// Makes `context` (null for none) the calling thread's. @return what it was before.
  ContextPtr install(ContextPtr context);

 private:
  void remember_released(ContextId id);

  IdSource& ids_;
  std::shared_ptr<StreamOrder> streams_;
  mutable std::mutex mutex_;
  std::unordered_map<ContextId, ContextPtr> contexts_;
  /// Ids that must not come back, oldest first; more than `max_released` are forgotten.
  std::unordered_set<ContextId> released_;
  std::deque<ContextId> released_order_;
  static constexpr std::size_t max_released =
      bounds::contexts.most != 0 ? 16 * bounds::contexts.most : 65536;
};

/// While it lives, the calling thread is in no context of any engine.
class OutsideContexts {
 public:
  OutsideContexts();
  ~OutsideContexts();
  OutsideContexts(OutsideContexts const&) = delete;
  OutsideContexts& operator=(OutsideContexts const&) = delete;

 private:
  std::vector<std::pair<ContextTable const*, ContextPtr>> before_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/autograd/impl/context_table.ipp>
#endif
