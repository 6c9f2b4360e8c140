#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <distgrad/rpc/calls.hpp>
#include <distgrad/rref/rref_table.hpp>

namespace distgrad {

/// A reference to a value that stays on one worker, shared between workers by being passed to and
/// returned from calls. The value lives as long as any reference to it on any worker.
/// Copies are cheap and share one reference. @threads safe: distinct and shared objects.
///
///     auto layer = engine.remote<make_linear>("ps0", 64, 128);   // RRef<Linear>
///     auto y = layer.rpc_sync<&Linear::forward>(x);              // runs on ps0
template <class T>
class RRef {
 public:
  using value_type = T;

  RRef() = default;
  explicit RRef(RRefHandlePtr handle) : handle_(std::move(handle)) {}

  bool is_valid() const { return handle_ != nullptr; }
  /// The worker where the value lives.
  WorkerInfo const& owner() const {
    return handle().table().agent().membership().resolve(handle().owner());
  }
  bool is_owner() const { return handle().is_owner(); }
  RRefId id() const { return handle().id(); }
  /// Whether the owner knows of this reference; true in every handler that received it.
  bool is_confirmed() const { return handle().table().is_confirmed(handle()); }

  /// A copy of the value, from wherever it lives; waits until it was made. Records autograd: a
  /// backward pass brings the gradient of a fetched tensor to its owner.
  /// @param timeout the engine's default if not given, no limit if zero.
  /// @throws RemoteError what the function that should make the value threw; Error `timeout`,
  /// `rref_creation_failed`, `peer_lost`.
  T to_here(std::optional<std::chrono::nanoseconds> timeout = {}) const {
    return is_owner() ? T(local_value(timeout)) : async_to_here(timeout).get();
  }

  /// The same as a future. On the owner, too, the future holds a copy.
  Future<T> async_to_here(std::optional<std::chrono::nanoseconds> timeout = {}) const;

  /// The value itself, on its owner; waits until it was made.
  /// @throws Error `not_owner`; as `to_here`.
  T& local_value(std::optional<std::chrono::nanoseconds> timeout = {}) const;

  /// Calls a member function of the value on its owner; blocks. @throws as `Worker::rpc_sync`.
  template <auto Member, class... Args>
  detail::CallResult<Member> rpc_sync(Args const&... args) const {
    return rpc_async<Member>(args...).get();
  }
  /// The same as a future.
  template <auto Member, class... Args>
  Future<detail::CallResult<Member>> rpc_async(Args const&... args) const;
  /// The same, keeping the result on the owner.
  template <auto Member, class... Args>
  RRef<detail::CallResult<Member>> remote(Args const&... args) const;

  RRefHandle const& handle() const {
    if (!handle_) throw Error(errc::invalid_argument, "this RRef refers to nothing");
    return *handle_;
  }
  RRefHandlePtr const& shared_handle() const { return handle_; }

 private:
  RRefHandlePtr handle_;
};

namespace detail {

/// The first argument of a member function that is called through an RRef: the object itself, on
/// its owner.
/// @tparam T const for a member function that is, which tells it from one that is not.
template <class T>
class OwnedValue {
 public:
  /// On the caller. @param by_fork whether the message shall keep the value alive by itself;
  /// otherwise the caller holds `handle` until the call was answered.
  OwnedValue(RRefHandlePtr handle, bool by_fork) : handle_(std::move(handle)), by_fork_(by_fork) {}
  /// On the owner.
  OwnedValue(RRefHandlePtr handle, std::shared_ptr<OwnerRRef> local)
      : handle_(std::move(handle)), local_(std::move(local)) {}

  operator OwnedValue<T const>() const
    requires(!std::is_const_v<T>)
  {
    return {handle_, by_fork_};
  }

  T& get() const;
  RRefHandle& handle() const { return *handle_; }
  bool by_fork() const { return by_fork_; }

 private:
  RRefHandlePtr handle_;
  std::shared_ptr<OwnerRRef> local_;
  bool by_fork_ = false;
};

template <auto Member, class Shape>
struct MemberCallOf;
/// What is called on the owner: `Member` on the object that the first argument names.
template <auto Member, class C, class R, class... A>
struct MemberCallOf<Member, CallableShape<C, R, A...>> {
  static std::string function_name() { return detail::function_name<Member>(); }
  R operator()(OwnedValue<C> self, std::remove_cvref_t<A>... args) const {
    return std::invoke(Member, self.get(), std::move(args)...);
  }
};

template <class C, class R, class... A>
CallableShape<C, R, A...> shape_of(CallableShape<C, R, A...> const&);
template <auto Member>
inline constexpr MemberCallOf<Member, decltype(shape_of(FunctionShape<Member>()))> member_call{};

/// The value of an entry as a `T`. @throws what kept it from being made; Error `invalid_argument`.
template <class T>
T& value_of(OwnerRRef& entry) {
  auto& value = entry.value().get();
  entry.enter();
  if (value.type != &type_key<T>) {
    throw Error(errc::invalid_argument, "the RRef refers to a value of type '" +
                                            std::string(value.type_name) + "', not '" +
                                            std::string(type_name<T>()) + "'");
  }
  return *static_cast<T*>(value.value.get());
}

template <class T>
T& OwnedValue<T>::get() const {
  return value_of<std::remove_const_t<T>>(*local_);
}

/// Makes user code wait until `future` is ready, and fail with its error.
template <class T>
void hold_for(Decoder& in, Future<T> future) {
  if (future.is_ready() && !future.error()) return;
  in.hold([future](unique_function<void(std::exception_ptr)> met) {
    future.on_ready([future, met = std::move(met)]() mutable { met(future.error()); });
  });
}

/// Runs `F` on the target's worker and keeps its result there.
template <auto F, class... Args>
RRef<CallResult<F>> create_remote(RRefTable& table, CallTarget const& target, Args const&... args) {
  auto& agent = table.agent();
  auto const owner = agent.membership().resolve(target.worker()).id;
  return RRef<CallResult<F>>(
      table.create(owner, Registered<F>::function.entry.name, target.timeout(),
                   [&](Draft& draft) { write_request<F>(agent, draft, args...); }));
}

DISTGRAD_DECL void encode_fork(Encoder& to, RRefHandle const& handle);
DISTGRAD_DECL RRefHandlePtr decode_fork(Decoder& from);

}  // namespace detail

/// References travel as forks: the message itself keeps the value alive until it arrived.
template <class T>
struct Codec<RRef<T>> {
  static constexpr std::uint64_t signature = compose_signature("rref", detail::type_signature<T>());
  static void encode(Encoder& to, RRef<T> const& value) { detail::encode_fork(to, value.handle()); }
  static RRef<T> decode(Decoder& from) { return RRef<T>(detail::decode_fork(from)); }
};

template <class T>
struct Codec<detail::OwnedValue<T>> {
  static constexpr std::uint64_t signature =
      compose_signature(std::is_const_v<T> ? "const owned" : "owned",
                        detail::type_signature<std::remove_const_t<T>>());
  static void encode(Encoder& to, detail::OwnedValue<T> const& value) {
    to.writer.number(value.by_fork());
    if (value.by_fork()) return detail::encode_fork(to, value.handle());
    value.handle().table().require_usable(value.handle());
    to.writer.id(value.handle().id());
  }
  static detail::OwnedValue<T> decode(Decoder& from) {
    RRefHandlePtr handle;
    std::shared_ptr<OwnerRRef> local;
    if (from.reader.number<bool>()) {
      handle = detail::decode_fork(from);
      local = handle->local();
      if (!local) throw Error(errc::not_owner, "a member function was called on a user's worker");
    } else {
      local = from.services.find<RRefTable>()->find_local(from.reader.id<RRefId>());
    }
    detail::hold_for(from, local->value());
    return {std::move(handle), std::move(local)};
  }
};

template <class T>
T& RRef<T>::local_value(std::optional<std::chrono::nanoseconds> timeout) const {
  if (!is_owner()) {
    throw Error(errc::not_owner, "RRef " + to_string(id()) + " (fork " +
                                     to_string(handle().fork()) + ") is owned by worker '" +
                                     owner().name + "'; use to_here() to get a copy");
  }
  auto& entry = *handle().local();
  if (timeout && timeout->count() > 0 && !entry.value().wait_for(*timeout)) {
    throw Error(errc::timeout, "the value of RRef " + to_string(id()) + " was not made within " +
                                   std::to_string(timeout->count() / 1'000'000) + " ms");
  }
  return detail::value_of<T>(entry);
}

template <class T>
Future<T> RRef<T>::async_to_here(std::optional<std::chrono::nanoseconds> timeout) const {
  static_assert(Decodable<T>, "the value's type cannot be sent; call its member functions instead");
  if (is_owner()) {
    return handle().local()->value().then(
        [self = *this](auto const&) { return T(detail::value_of<T>(*self.handle().local())); });
  }
  auto promise = std::make_shared<Promise<T>>(handle().table().agent().shared_host());
  handle_->table().fetch(handle_, timeout, [promise](std::exception_ptr error, Decoder* decoder) {
    detail::fulfil(*promise, std::move(error), decoder);
  });
  return promise->future();
}

template <class T>
template <auto Member, class... Args>
Future<detail::CallResult<Member>> RRef<T>::rpc_async(Args const&... args) const {
  auto& agent = handle().table().agent();
  return detail::call_async_keeping<detail::member_call<Member>>(
      agent, CallTarget(handle().owner()), handle_, detail::OwnedValue<T>(handle_, false), args...);
}

template <class T>
template <auto Member, class... Args>
RRef<detail::CallResult<Member>> RRef<T>::remote(Args const&... args) const {
  return detail::create_remote<detail::member_call<Member>>(
      handle().table(), CallTarget(handle().owner()), detail::OwnedValue<T>(handle_, true),
      args...);
}

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rref/impl/rref.ipp>
#endif
