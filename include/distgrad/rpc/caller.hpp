#pragma once
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include <distgrad/config.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/unique_function.hpp>
#include <distgrad/rpc/deadline_wheel.hpp>
#include <distgrad/rpc/membership.hpp>
#include <distgrad/wire/message.hpp>

namespace distgrad {

/// Receives a call's answer, or the error that ended it. Called once, outside of any lock.
using OnAnswer = unique_function<void(std::exception_ptr, Message)>;

/// The calls this worker made that are not answered yet. @threads safe: shared object.
class Caller {
 public:
  Caller(Membership const& membership, TimeSource const& clock)
      : membership_(membership), clock_(clock) {}

  /// Registers a call before its message is sent.
  /// @param function shown in errors; must outlive the call (names of functions do).
  /// @param timeout zero means never.
  /// @param id_place gets the call's id before the call can end, if `on_answer` has a place for it.
  CallId begin(WorkerId to, std::string_view function, std::chrono::nanoseconds timeout,
               OnAnswer on_answer, CallId* id_place = nullptr);

  /// An answer arrived; one for a call that ended before is dropped.
  void answered(WorkerId from, Message answer);
  /// Ends a call with an error, unless it ended before.
  void fail(CallId call, std::exception_ptr error);
  /// Drops a call without telling anybody.
  void withdraw(CallId call);
  /// The connection to `peer` ended: its calls fail with `code`.
  void fail_peer(WorkerId peer, error_code code);
  /// Every call fails; later ones fail at once.
  void close();
  /// Ends the calls whose deadline has come.
  void expire(time_point now);
  std::optional<time_point> next_deadline() const;

  /// Until when the loop may sleep, as far as calls are concerned. It may be too early, when the
  /// call it was for has ended: so a stream of calls with one timeout wakes the loop once for
  /// each timeout, not once for each call.
  time_point plan_turn();
  /// Whether a call was begun whose deadline comes before the planned turn; says so once.
  bool is_turn_overdue() { return overdue_.load() && overdue_.exchange(false); }

  std::size_t pending() const;
  /// Entries that still have a deadline; none when `pending()` is zero.
  std::size_t deadlines() const;
  /// How many calls were ever begun.
  std::uint64_t begun() const;

 private:
  struct Pending {
    WorkerId to;
    std::string_view function;
    time_point since;
    DeadlineWheel::Ticket ticket;
    OnAnswer on_answer;
  };

  std::optional<Pending> take(CallId call);
  std::string describe(Pending const& call) const;
  std::exception_ptr lost(Pending const& call, error_code code, std::string const& why) const;

  Membership const& membership_;
  TimeSource const& clock_;
  mutable std::mutex mutex_;
  std::uint64_t last_call_ = 0;
  bool closed_ = false;
  std::unordered_map<CallId, Pending> pending_;
  DeadlineWheel wheel_;
  time_point planned_ = time_point::max();
  std::atomic<bool> overdue_{false};
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rpc/impl/caller.ipp>
#endif
