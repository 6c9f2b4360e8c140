#pragma once
#include <vector>

#include <distgrad/rpc/caller.hpp>

namespace distgrad {

namespace detail {
inline constexpr char const* closed_here = "this engine was shut down";
}  // namespace detail

DISTGRAD_DECL CallId Caller::begin(WorkerId to, std::string_view function,
                                   std::chrono::nanoseconds timeout, OnAnswer on_answer,
                                   CallId* id_place) {
  auto const now = clock_.now();
  std::unique_lock lock(mutex_);
  CallId const call{++last_call_};
  if (id_place) *id_place = call;
  Pending entry{to, function, now, {}, std::move(on_answer)};
  if (closed_) {
    lock.unlock();
    entry.on_answer(lost(entry, errc::closed, detail::closed_here), {});
    return call;
  }
  entry.ticket = wheel_.add(call, Deadline::after(timeout, now));
  pending_.emplace(call, std::move(entry));
  if (auto const next = wheel_.next(); next && *next < planned_) {
    planned_ = *next;
    overdue_.store(true);
  }
  return call;
}

DISTGRAD_DECL std::optional<Caller::Pending> Caller::take(CallId call) {
  std::lock_guard lock(mutex_);
  auto const at = pending_.find(call);
  if (at == pending_.end()) return std::nullopt;
  std::optional<Pending> taken(std::move(at->second));
  wheel_.cancel(call, taken->ticket);
  pending_.erase(at);
  return taken;
}

DISTGRAD_DECL void Caller::answered(WorkerId from, Message answer) {
  {
    std::lock_guard lock(mutex_);
    auto const at = pending_.find(answer.call);
    if (at == pending_.end() || at->second.to != from) return;  // late, or not its to answer
  }
  if (auto call = take(answer.call)) call->on_answer(nullptr, std::move(answer));
}

DISTGRAD_DECL void Caller::fail(CallId id, std::exception_ptr error) {
  if (auto call = take(id)) call->on_answer(std::move(error), {});
}

DISTGRAD_DECL void Caller::withdraw(CallId id) { take(id); }

DISTGRAD_DECL void Caller::fail_peer(WorkerId peer, error_code code) {
  auto const why = code == errc::closed ? "that worker was shut down" : code.message();
  std::vector<CallId> affected;
  {
    std::lock_guard lock(mutex_);
    for (auto const& [id, call] : pending_) {
      if (call.to == peer) affected.push_back(id);
    }
  }
  for (auto id : affected) {
    if (auto call = take(id)) call->on_answer(lost(*call, code, why), {});
  }
}

DISTGRAD_DECL void Caller::close() {
  std::unordered_map<CallId, Pending> all;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    all.swap(pending_);
    wheel_ = {};
  }
  for (auto& [id, call] : all) call.on_answer(lost(call, errc::closed, detail::closed_here), {});
}

DISTGRAD_DECL void Caller::expire(time_point now) {
  std::vector<CallId> expired;
  {
    std::lock_guard lock(mutex_);
    expired = wheel_.expire(now);
  }
  for (auto id : expired) {
    auto call = take(id);
    if (!call) continue;
    auto const text = describe(*call) +
                      " got no answer before its deadline; the function may still run there. "
                      "Give the call more time with within(timeout, worker), or all calls with "
                      "EngineOptions::rpc_timeout";
    call->on_answer(std::make_exception_ptr(Error(errc::timeout, text)), {});
  }
}

DISTGRAD_DECL std::optional<time_point> Caller::next_deadline() const {
  std::lock_guard lock(mutex_);
  return wheel_.next();
}

DISTGRAD_DECL time_point Caller::plan_turn() {
  std::lock_guard lock(mutex_);
  auto const next = wheel_.next().value_or(time_point::max());
  if (next < planned_ || planned_ <= clock_.now()) planned_ = next;
  return planned_;
}

DISTGRAD_DECL std::size_t Caller::pending() const {
  std::lock_guard lock(mutex_);
  return pending_.size();
}

DISTGRAD_DECL std::size_t Caller::deadlines() const {
  std::lock_guard lock(mutex_);
  return wheel_.size();
}

DISTGRAD_DECL std::uint64_t Caller::begun() const {
  std::lock_guard lock(mutex_);
  return last_call_;
}

DISTGRAD_DECL std::string Caller::describe(Pending const& call) const {
  auto const waited = std::chrono::duration_cast<milliseconds>(clock_.now() - call.since);
  return "the call of '" + std::string(call.function) + "' on worker '" +
         membership_.name(call.to) + "' (waited " + std::to_string(waited.count()) + " ms)";
}

DISTGRAD_DECL std::exception_ptr Caller::lost(Pending const& call, error_code code,
                                              std::string const& why) const {
  auto const text = describe(call) + " failed: " + why + "; the function may have run, or not";
  return std::make_exception_ptr(Error(code, text));
}

}  // namespace distgrad
