#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include <distgrad/config.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/wire/frame.hpp>

namespace distgrad {

/// A control message between the tables of two workers: `rref_create` (travels with the call that
/// makes the value), `rref_fork_request`, `rref_child_accept`, `rref_user_delete` or `rref_ack`.
struct RRefControl {
  FrameKind kind{};
  RRefId rref;
  ForkId fork;
  /// Number of this message among those from its sender to its receiver, from 1. An ack echoes it.
  std::uint64_t request = 0;
  /// The sender needs no answer to any request below this number.
  std::uint64_t settled = 0;
  /// Of a fork request: the request of the create that makes the value, 0 if its owner made it. Of
  /// a user delete: the create that must not run if it is still on its way, 0 if it has run.
  std::uint64_t create = 0;
  /// Of an ack: why the owner refuses a fork request; 0 when it does not.
  errc error{};
  friend bool operator==(RRefControl const&, RRefControl const&) = default;
};

/// One worker's end of the control messages between it and one peer: numbers what it sends, keeps
/// it until it is acknowledged, and recognises what arrives twice. Messages may overtake each
/// other.
/// Its memory is bounded by the messages on their way. @threads not safe.
class ControlChannel {
 public:
  /// Numbers a message for the peer and keeps it until it is settled.
  RRefControl number(RRefControl message);

  /// The peer answered `request`; with it the create is settled which it cancelled, if any.
  /// @return the message, or one without a number when it was settled before.
  RRefControl settle(std::uint64_t request);

  /// Whether the peer's `request` arrives for the first time; remembers it.
  /// @param settled that of the peer's message, or 0.
  bool is_first(std::uint64_t request, std::uint64_t settled);

  /// Whether the peer's `request` arrived, or will never count.
  bool is_done(std::uint64_t request) const { return request < low_ || done_.contains(request); }

  /// Forgets the peer. Its successor counts from 1; this end goes on counting, so that a peer which
  /// was thought lost does not take new messages for old ones.
  void reset();

  /// Messages without an answer, by number.
  std::map<std::uint64_t, RRefControl> const& unsettled() const { return unsettled_; }
  std::uint64_t next() const { return next_; }
  /// All requests of the peer below this number are done with; so are those in `done`.
  std::uint64_t low() const { return low_; }
  std::set<std::uint64_t> const& done() const { return done_; }

  friend bool operator==(ControlChannel const&, ControlChannel const&) = default;

 private:
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, RRefControl> unsettled_;
  std::uint64_t low_ = 1;
  std::set<std::uint64_t> done_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rref/impl/control_channel.ipp>
#endif
