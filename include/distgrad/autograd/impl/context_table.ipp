#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include <distgrad/autograd/context_table.hpp>
#include <distgrad/core/error.hpp>

namespace distgrad {
namespace detail {

/// A thread's current context in each engine of the process; rarely more than one or two.
using ThreadContexts = std::vector<std::pair<ContextTable const*, ContextPtr>>;

inline ThreadContexts& thread_contexts() {
  thread_local ThreadContexts contexts;
  return contexts;
}

inline Error unknown_context(ContextId id, char const* why) {
  return Error(errc::unknown_context,
               "could not find distributed autograd context with id " + to_string(id) + why);
}

}  // namespace detail

DISTGRAD_DECL ContextPtr ContextTable::create() {
  auto context = std::make_shared<DistAutogradContext>(ids_.next<ContextId>(), streams_);
  std::lock_guard lock(mutex_);
  bounds::contexts.require_room(contexts_.size());
  contexts_.emplace(context->id(), context);
  return context;
}

DISTGRAD_DECL ContextPtr ContextTable::get_or_create(ContextId id) {
  std::lock_guard lock(mutex_);
  if (auto const at = contexts_.find(id); at != contexts_.end()) return at->second;
  if (!id.is_valid() || released_.contains(id)) {
    throw detail::unknown_context(id, "; it was released before this message arrived");
  }
  bounds::contexts.require_room(contexts_.size());
  return contexts_.emplace(id, std::make_shared<DistAutogradContext>(id, streams_)).first->second;
}

DISTGRAD_DECL ContextPtr ContextTable::find(ContextId id) const {
  std::lock_guard lock(mutex_);
  auto const at = contexts_.find(id);
  return at == contexts_.end() ? nullptr : at->second;
}

DISTGRAD_DECL ContextPtr ContextTable::get(ContextId id) const {
  if (auto context = find(id)) return context;
  throw detail::unknown_context(id, "; it was released, or never came to this worker");
}

DISTGRAD_DECL ContextPtr ContextTable::release(ContextId id) {
  std::lock_guard lock(mutex_);
  remember_released(id);
  auto entry = contexts_.extract(id);
  return entry ? std::move(entry.mapped()) : nullptr;
}

DISTGRAD_DECL void ContextTable::remember_released(ContextId id) {
  if (!released_.insert(id).second) return;
  released_order_.push_back(id);
  if (released_order_.size() > max_released) {
    released_.erase(released_order_.front());
    released_order_.pop_front();
  }
}

DISTGRAD_DECL std::size_t ContextTable::size() const {
  std::lock_guard lock(mutex_);
  return contexts_.size();
}

DISTGRAD_DECL std::vector<ContextPtr> ContextTable::all() const {
  std::lock_guard lock(mutex_);
  std::vector<ContextPtr> contexts;
  for (auto const& [id, context] : contexts_) contexts.push_back(context);
  return contexts;
}

DISTGRAD_DECL ContextPtr ContextTable::current() const {
  for (auto const& [table, context] : detail::thread_contexts()) {
    if (table == this) return context;
  }
  return nullptr;
}

DISTGRAD_DECL ContextPtr ContextTable::install(ContextPtr context) {
  auto& contexts = detail::thread_contexts();
  auto const at = std::ranges::find(contexts, this, [](auto const& c) { return c.first; });
  if (at == contexts.end()) {
    if (context) contexts.emplace_back(this, std::move(context));
    return nullptr;
  }
  if (context) return std::exchange(at->second, std::move(context));
  auto before = std::move(at->second);
  contexts.erase(at);
  return before;
}

DISTGRAD_DECL OutsideContexts::OutsideContexts()
    : before_(std::exchange(detail::thread_contexts(), {})) {}

DISTGRAD_DECL OutsideContexts::~OutsideContexts() {
  detail::thread_contexts() = std::move(before_);
}

}  // namespace distgrad
