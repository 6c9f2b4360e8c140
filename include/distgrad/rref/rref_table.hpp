#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/bounds.hpp>
#include <distgrad/core/future.hpp>
#include <distgrad/rpc/agent.hpp>
#include <distgrad/rref/fork_protocol.hpp>
#include <distgrad/rref/owner_rref.hpp>

namespace distgrad {

class RRefTable;

/// One reference to a remote value, shared by the copies of an `RRef`. The owner's side holds the
/// value itself; a user's side holds a fork that its owner knows of.
class RRefHandle {
 public:
  RRefHandle(std::shared_ptr<RRefTable> table, WorkerId owner, RRefId id, ForkId fork,
             std::shared_ptr<OwnerRRef> local)
      : table_(std::move(table)), owner_(owner), id_(id), fork_(fork), local_(std::move(local)) {}
  ~RRefHandle();
  RRefHandle(RRefHandle const&) = delete;
  RRefHandle& operator=(RRefHandle const&) = delete;

  RRefTable& table() const { return *table_; }
  WorkerId owner() const { return owner_; }
  RRefId id() const { return id_; }
  /// Invalid on the owner.
  ForkId fork() const { return fork_; }
  bool is_owner() const { return local_ != nullptr; }
  /// Null on a user.
  std::shared_ptr<OwnerRRef> const& local() const { return local_; }

 private:
  std::shared_ptr<RRefTable> table_;
  WorkerId owner_;
  RRefId id_;
  ForkId fork_;
  std::shared_ptr<OwnerRRef> local_;
};

using RRefHandlePtr = std::shared_ptr<RRefHandle>;

/// The remote references of one engine: carries out what `ForkProtocol` decides, keeps the values
/// this worker owns, and answers fetches. It outlives its engine as long as an `RRef` does; after
/// `close` every operation fails with `errc::closed`. @threads safe: shared object.
class RRefTable : public std::enable_shared_from_this<RRefTable> {
 public:
  RRefTable(RpcAgent& agent, IdSource& ids);

  /// A handle to a value that lives here.
  /// @throws Error `limit_reached`, here and in `create` beyond DISTGRAD_MAX_RREFS.
  RRefHandlePtr make_local(ErasedValue value);

  /// Asks `owner` to run a function and keep its result.
  /// @param write adds name, signature and arguments to the request.
  RRefHandlePtr create(WorkerId owner, std::string_view function,
                       std::optional<std::chrono::nanoseconds> timeout,
                       unique_function<void(Draft&)> write);

  /// What travels instead of `handle` in a message to `to`. @throws Error if the value cannot be
  /// had any more.
  ForkData share(RRefHandle const& handle, WorkerId to);
  /// The message with `data` is certain never to be decoded.
  void share_undelivered(ForkData const& data) noexcept;
  /// The handle for what arrived.
  /// @param confirmed receives a future if user code has to wait until the owner knows it.
  RRefHandlePtr receive(ForkData const& data, std::optional<Future<void>>& confirmed);

  /// Asks the owner for the value. @param on_result as of any call.
  void fetch(RRefHandlePtr const& handle, std::optional<std::chrono::nanoseconds> timeout,
             OnResult on_result);

  /// The value `id` that lives here. @throws Error `rref_deleted`.
  std::shared_ptr<OwnerRRef> find_local(RRefId id);
  /// @throws Error `rref_creation_failed` or what else ended the reference.
  void require_usable(RRefHandle const& handle) const;
  /// Whether the owner is known to know this reference.
  bool is_confirmed(RRefHandle const& handle) const;

  /// Whether no control message is on its way that this worker has to stay for.
  bool is_quiet() const;
  std::size_t owned() const;
  std::size_t used() const;
  std::size_t forks() const;
  std::size_t pending_users() const;

  /// The engine of this table. @throws Error `closed`.
  RpcAgent& agent() const;
  void close();

 private:
  friend class RRefHandle;
  struct Deeds;

  void on_create(WorkerId from, Message message);
  void on_fetch(WorkerId from, Message message);
  void on_control(WorkerId from, Message const& message);
  void on_peer_lost(WorkerId peer);
  OnInvoked on_created(std::shared_ptr<OwnerRRef> const& value, FunctionEntry const& function,
                       CallId call);
  void answer_fetch(WorkerId from, CallId call, ErasedValue const& value, CallState const& state);
  void drop(RRefHandle const& handle) noexcept;

  /// The lock is held. @throws Error `closed`.
  void require_open() const;
  std::shared_ptr<OwnerRRef> entry(RRefId id);
  std::size_t references() const { return protocol_.owner_entries() + protocol_.users(); }
  /// Runs `decide` on the protocol under the lock, then does what it wants done.
  template <class Decide>
  auto with_protocol(Decide&& decide);
  Deeds take_deeds();
  void carry_out(Deeds deeds);

  mutable std::mutex mutex_;
  RpcAgent* agent_;   // null once closed
  RpcAgent& engine_;  // for what the engine itself runs, which may go on for a moment after `close`
  IdSource& ids_;
  ForkProtocol protocol_;
  std::unordered_map<RRefId, std::shared_ptr<OwnerRRef>> owned_;
  /// Why creations that this worker asked for failed, for users that still have a handle.
  std::unordered_map<ForkId, std::string> failures_;
  /// Users whose confirmation somebody waits for.
  std::unordered_map<ForkId, std::vector<std::shared_ptr<Promise<void>>>> awaited_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rref/impl/rref_table.ipp>
#include <distgrad/rref/impl/rref_table_owner.ipp>
#endif
