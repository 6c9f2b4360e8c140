#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/rref/control_channel.hpp>

namespace distgrad {

/// What travels inside a call or reply in place of a reference; its receiver becomes a user or, on
/// the owner, one more holder of the value.
struct ForkData {
  WorkerId owner;
  RRefId rref;
  /// The reference the receiver will hold.
  ForkId fork;
  /// The worker that shared it.
  WorkerId parent;
  /// The request of the create that makes the value, for an owner that has not got it yet.
  std::uint64_t create = 0;
  friend bool operator==(ForkData const&, ForkData const&) = default;
};

/// Where a user's reference stands.
enum class ForkState : std::uint8_t {
  pending,    ///< The owner has not acknowledged it yet.
  confirmed,  ///< The owner knows it and keeps the value.
  failed,     ///< The value cannot be had; the reference's error says why.
  deleted,    ///< Released, or never known here.
};

/// What the protocol wants done.
struct RRefAction {
  enum class Kind : std::uint8_t {
    send,          ///< Send `message` to worker `to`.
    confirmed,     ///< The user `fork` is known to the owner.
    failed,        ///< Every operation on the user `fork` shall fail with `error`.
    value_failed,  ///< The value `rref`, owned here, will never be made: `error`.
    value_freed,   ///< Nobody holds the value `rref`, owned here: drop it.
  };
  Kind kind{};
  WorkerId to;
  RRefControl message;
  RRefId rref;
  ForkId fork;
  error_code error;
  friend bool operator==(RRefAction const&, RRefAction const&) = default;
};

/// What a create message asks of the owner.
enum class CreateVerdict : std::uint8_t {
  run,        ///< Run the function and keep its result.
  duplicate,  ///< Known already; answer as the first time, do not run it again.
  cancelled,  ///< Its creator gave up, or everybody has let go; do not run it.
};

/// What the receiver of a `ForkData` holds.
struct Received {
  /// It holds the value itself, and calls `release_owner` once for it. Otherwise it is a user, and
  /// calls `release`.
  bool owner = false;
  /// User code that got the reference as an argument runs once this is not `pending`.
  ForkState state = ForkState::pending;
  /// Set when `state` is `failed`; on the owner there is nothing to release then.
  error_code error;
};

/// Decides when a remote value may be freed: who holds a reference to it, on which worker, and
/// which of them its owner knows. One instance per worker; no I/O, threads or clocks. Local
/// operations and peers' messages go in, and `take_actions` says what to do.
///
/// Two promises, whatever the order in which messages arrive and however often each does:
/// the owner learns when each user goes, and a user goes only when the owner knows all it forked.
/// So a value lives exactly as long as any reference to it. docs/rref-protocol.md shows the flows.
///
/// One user's reference:
///
///     state      event                      next       what follows
///     -          remote_created             pending    (the caller sends the create message)
///     -          received from the owner    confirmed  -
///     -          received from a user       pending    fork_request to the owner
///     pending    create_answered            confirmed  confirmed
///     pending    ack of its fork request    confirmed  confirmed, child_accept to parent
///     pending    create_answered(error)     failed     failed; then [1]
///     pending    ack refuses                failed     failed, child_accept to parent; then [1]
///     any        its owner is lost          failed     failed; no message, children forgotten
///     confirmed  released                   deleted    [1]
///     failed     released                   deleted    [1] unless done already
///
///     [1] when every child it was shared as is accepted (child_accept from each), not before:
///         user_delete to the owner, which also cancels a create that was never answered.
///
/// One value at its owner:
///
///     entry      event                      next       what follows
///     absent     created_locally, create    present    -
///     absent     fork_request, or received  present    placeholder, if the create is on its way;
///                from a user                           refused, if it came or its creator is lost
///     present    create                     present    a placeholder becomes the value
///     present    share_as_owner             present    registers the child before it travels
///     present    cancelling user_delete,    present    value_failed, if it is a placeholder
///                or its creator is lost
///     present    last fork and handle gone  absent     value_freed
///
/// @threads not safe: one lock around each call, `take_actions` and the doing of value actions.
class ForkProtocol {
 public:
  explicit ForkProtocol(WorkerId self) : self_(self) {}

  // What happens on this worker.

  /// This worker made a value and one handle to it; nobody else knows.
  void created_locally(RRefId rref);

  /// This worker asks `owner` to make a value and holds the user `fork` of it; if it is the owner
  /// itself, it holds one handle to the value.
  /// @return what has to travel with the call. @throws Error `closed`, `peer_lost`.
  [[nodiscard]] RRefControl remote_created(RRefId rref, ForkId fork, WorkerId owner);

  /// The owner answered the create, or (`error`) it failed, was lost or took too long. A later
  /// answer changes nothing.
  void create_answered(RRefId rref, ForkId fork, error_code error = {});

  /// This worker owns `rref` and sends a reference to `to` (any worker, itself included), which
  /// will hold it as `child`. @throws Error `closed`, `peer_lost`, `rref_deleted`.
  [[nodiscard]] ForkData share_as_owner(RRefId rref, ForkId child, WorkerId to);

  /// The user `fork` of this worker is sent to `to` (the owner and this worker included), which
  /// will hold it as `child`. @throws Error `closed`, `peer_lost`, `rref_deleted`, or what `fork`
  /// failed with.
  [[nodiscard]] ForkData share_as_user(ForkId fork, ForkId child, WorkerId to);

  /// The message with `data` is certain never to be decoded: not sent, or refused unread.
  void share_undelivered(ForkData const& data);

  /// A reference arrived. @throws Error `bad_message` when this fork arrived before.
  Received received(ForkData const& data);

  /// The last handle of a user went away.
  void release(ForkId fork);

  /// One handle of a value owned here went away.
  void release_owner(RRefId rref);

  // What peers send.

  /// A create message arrived at the owner.
  [[nodiscard]] CreateVerdict on_create(WorkerId from, RRefControl const& message);

  /// A fork request, child accept, user delete or ack arrived.
  /// @return false if it is none of these.
  bool on_control(WorkerId from, RRefControl const& message);

  // What happens to the group.

  /// Nothing will pass between this worker and `worker` any more: its forks are dropped, users of
  /// its values fail, and nobody waits for it. Calling it again does nothing.
  void peer_lost(WorkerId worker);

  /// A new process took the place of the lost `worker`. What the old one made stays refused.
  void peer_joined(WorkerId worker, Incarnation incarnation);

  /// Sends what `worker` has not acknowledged once more, after a reconnect.
  void resend(WorkerId worker);

  /// Releases every user of this worker, whether or not its handle is still alive; nothing can be
  /// shared or created any more. Then wait for `is_quiet`. @return the users that had a handle.
  std::vector<ForkId> begin_shutdown();

  /// What to do since the last call, in this order.
  std::vector<RRefAction> take_actions() { return std::exchange(actions_, {}); }

  // What is known here.

  ForkState state(ForkId fork) const;
  /// What a failed user failed with.
  error_code error(ForkId fork) const;
  /// Values owned here that somebody holds.
  std::size_t owner_entries() const { return owned_.size(); }
  std::size_t handles(RRefId rref) const;
  /// The users of a value owned here, including those on their way.
  std::vector<ForkId> forks(RRefId rref) const;
  std::size_t forks() const;
  std::size_t users() const { return users_.size(); }
  std::size_t pending_users() const;
  /// Children shared by users of this worker that the owner may not know yet.
  std::size_t pending_children() const { return children_.size(); }
  /// Control messages no peer has acknowledged yet.
  std::size_t unacked() const;
  /// Nothing is on its way that this worker has to stay for.
  bool is_quiet() const { return pending_users() + pending_children() + unacked() == 0; }
  /// The whole state, for logs and tests.
  std::string text() const;

  friend bool operator==(ForkProtocol const&, ForkProtocol const&) = default;

 private:
  struct Value {
    std::map<ForkId, WorkerId> forks;  // and who holds them
    std::size_t handles = 0;
    std::uint64_t create = 0;  // the request that makes it, 0 if made here
    bool created = false;      // else a placeholder
    bool failed = false;
    friend bool operator==(Value const&, Value const&) = default;
  };
  struct User {
    RRefId rref;
    WorkerId owner, parent;
    ForkState state = ForkState::pending;
    bool released = false;
    bool delete_sent = false;
    std::size_t children = 0;
    std::uint64_t create = 0;  // the request that makes the value
    bool owes_create = false;  // sent from here, and not answered
    error_code error;
    friend bool operator==(User const&, User const&) = default;
  };
  struct Child {
    ForkId parent;
    WorkerId to;
    friend bool operator==(Child const&, Child const&) = default;
  };
  using Users = std::map<ForkId, User>;
  using Values = std::map<RRefId, Value>;

  void require_open(WorkerId peer, char const* what) const;
  void send(WorkerId to, RRefControl message);
  void accept_child(WorkerId parent, ForkId child, RRefId rref);
  void child_accepted(ForkId child);
  void confirm(ForkId fork);
  void fail(Users::iterator user, error_code error);
  bool let_go(Users::iterator user);
  void drop_fork(RRefId rref, ForkId fork);
  void free_if_unused(Values::iterator value);
  void fail_placeholder(RRefId rref, Value& value, errc error);
  bool is_on_its_way(RRefId rref, std::uint64_t create) const;
  Value* find_or_expect(RRefId rref, std::uint64_t create);
  errc register_fork(WorkerId from, RRefControl const& message);
  void on_user_delete(WorkerId from, RRefControl const& message);
  void on_ack(WorkerId from, RRefControl const& message);
  Received receive_as_owner(ForkData const& data);

  WorkerId self_;
  Values owned_;
  Users users_;
  std::map<ForkId, Child> children_;
  std::map<WorkerId, ControlChannel> channels_;
  std::set<WorkerId> lost_;
  std::map<WorkerId, Incarnation> reborn_;  // workers that took the place of a lost one
  bool shutting_down_ = false;
  std::vector<RRefAction> actions_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rref/impl/fork_protocol.ipp>
#include <distgrad/rref/impl/fork_protocol_state.ipp>
#endif
