#pragma once
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/deadline.hpp>
#include <distgrad/core/device_order.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/exception.hpp>
#include <distgrad/core/unique_function.hpp>

namespace distgrad {

/// What a future asks of the engine that fulfils it.
class FutureHost {
 public:
  virtual ~FutureHost() = default;
  /// Runs `continuation` soon, on a thread that user code may occupy.
  virtual void post(unique_function<void()> continuation) = 0;
  /// Binds what belongs to the calling thread (its autograd context) to `continuation`.
  virtual unique_function<void()> carry(unique_function<void()> continuation) {
    return continuation;
  }
  /// Makes progress on the calling thread for a while, at most until `until`.
  /// @return false if other threads make the progress, so that the caller may sleep.
  virtual bool drive(time_point until) {
    (void)until;
    return false;
  }
  /// Orders what threads give to devices; null if this engine has none.
  DeviceOrder* devices() const { return devices_; }

 protected:
  DeviceOrder* devices_ = nullptr;
};

namespace detail {

/// The part of a shared state that does not depend on the value's type.
class FutureStateBase {
 public:
  explicit FutureStateBase(std::shared_ptr<FutureHost> host) : host_(std::move(host)) {}
  virtual ~FutureStateBase() = default;

  bool is_ready() const;
  /// @return false if the deadline passed first. Enters a `BlockingRegion`.
  bool wait(Deadline deadline);
  void on_ready(unique_function<void()> continuation);
  /// @return false if the state has a result already.
  bool set_error(std::exception_ptr error);
  void on_cancel(unique_function<void()> withdraw);
  bool cancel();
  std::exception_ptr error() const;
  std::shared_ptr<FutureHost> const& host() const { return host_; }
  /// On a ready state: the calling thread's devices go on where the result's had come to. @return
  /// what orders devices, or null.
  DeviceOrder* follow() const;
  void promise_dropped() noexcept;

 protected:
  /// Runs `store` under the lock unless there is a result already; then wakes everybody.
  template <class Store>
  bool settle(Store&& store) {
    std::vector<unique_function<void()>> ready;
    unique_function<void()> withdraw;
    auto mark = host_ && host_->devices() ? host_->devices()->mark() : nullptr;
    {
      std::lock_guard lock(mutex_);
      if (ready_) return false;
      store();
      mark_ = std::move(mark);
      ready_ = true;
      ready.swap(continuations_);
      withdraw = std::move(withdraw_);
      if (waiters_ != 0) changed_.notify_all();
    }
    for (auto& continuation : ready) dispatch(std::move(continuation));
    return true;
  }

  std::exception_ptr error_;

 private:
  void dispatch(unique_function<void()> continuation);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int waiters_ = 0;
  bool ready_ = false;
  std::vector<unique_function<void()>> continuations_;
  unique_function<void()> withdraw_;
  std::shared_ptr<FutureHost> host_;
  std::shared_ptr<DeviceMark> mark_;
};

template <class T>
class FutureState : public FutureStateBase {
 public:
  using FutureStateBase::FutureStateBase;
  using Stored = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

  template <class... U>
  bool set_value(U&&... value) {
    return settle([&] { value_.emplace(std::forward<U>(value)...); });
  }
  Stored& value() { return *value_; }

 private:
  std::optional<Stored> value_;
};

}  // namespace detail

template <class T>
class Promise;

/// The result of a call that may not have arrived yet. Copies share it.
/// @threads safe: shared object. Continuations run on the engine's compute queue.
template <class T>
class Future {
 public:
  using value_type = T;

  Future() = default;

  bool is_valid() const { return state_ != nullptr; }
  bool is_ready() const { return state_->is_ready(); }

  /// Waits, then returns the value (a reference that lives as long as this future's state) or
  /// throws the call's error. Every call of `get` has the same outcome.
  std::add_lvalue_reference_t<T> get() const {
    state_->wait(Deadline::never());
    return outcome();
  }
  /// Waits at most `timeout`. @return whether the result is there.
  bool wait_for(std::chrono::nanoseconds timeout) const {
    return state_->wait(Deadline{Clock::now() + timeout});
  }
  void wait() const { state_->wait(Deadline::never()); }

  /// Calls `f(future)` once this future is ready, errors included.
  /// @return the future of what `f` returns or throws.
  template <class F>
  auto then(F f) const {
    using R = std::invoke_result_t<F&, Future>;
    Promise<R> promise(state_->host());
    auto result = promise.future();
    on_ready([self = *this, f = std::move(f), promise = std::move(promise)]() mutable {
      promise.set_from([&]() -> R { return f(std::move(self)); });
    });
    return result;
  }
  /// Runs `continuation` once this future is ready.
  void on_ready(unique_function<void()> continuation) const {
    state_->on_ready(std::move(continuation));
  }

  /// Withdraws the operation: the future gets `errc::cancelled` unless its result came first. A
  /// function that runs on a peer already is not stopped. @return whether it was withdrawn.
  bool cancel() const { return state_->cancel(); }

  /// The error of a ready future, or null.
  std::exception_ptr error() const { return state_->error(); }

 private:
  friend class Promise<T>;
  explicit Future(std::shared_ptr<detail::FutureState<T>> state) : state_(std::move(state)) {}

  std::add_lvalue_reference_t<T> outcome() const {
    if (auto error = state_->error()) std::rethrow_exception(error);
    auto* const order = state_->follow();
    if constexpr (!std::is_void_v<T>) {
      // A higher room knows what of a value is on devices.
      if constexpr (requires { keep_on_streams(state_->value(), *order); }) {
        if (order) keep_on_streams(state_->value(), *order);
      }
      return state_->value();
    } else {
      (void)order;
    }
  }

  std::shared_ptr<detail::FutureState<T>> state_;
};

/// Gives a `Future` its result. A promise that goes away unfulfilled completes its future with
/// `errc::closed`. @threads the first result wins; any thread.
template <class T>
class Promise {
 public:
  explicit Promise(std::shared_ptr<FutureHost> host = nullptr)
      : state_(std::make_shared<detail::FutureState<T>>(std::move(host))) {}
  Promise(Promise&&) = default;
  Promise& operator=(Promise&&) = default;
  ~Promise() {
    if (state_) state_->promise_dropped();
  }

  Future<T> future() const { return Future<T>(state_); }
  template <class... U>
  bool set_value(U&&... value) {
    return state_->set_value(std::forward<U>(value)...);
  }
  bool set_error(std::exception_ptr error) { return state_->set_error(std::move(error)); }
  /// What `Future::cancel` does beside completing the future.
  void on_cancel(unique_function<void()> withdraw) { state_->on_cancel(std::move(withdraw)); }

  /// Completes with what `f` returns or throws.
  template <class F>
  void set_from(F&& f) noexcept {
    try {
      if constexpr (std::is_void_v<T>) {
        f();
        set_value();
      } else {
        set_value(f());
      }
    } catch (...) {
      set_error(std::current_exception());
    }
  }

 private:
  std::shared_ptr<detail::FutureState<T>> state_;
};

/// A future that is ready from the start.
template <class T>
Future<std::decay_t<T>> make_ready_future(T&& value) {
  Promise<std::decay_t<T>> promise;
  promise.set_value(std::forward<T>(value));
  return promise.future();
}

namespace detail {
template <class T>
struct is_future : std::false_type {};
template <class T>
struct is_future<Future<T>> : std::true_type {};
}  // namespace detail

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/core/impl/future.ipp>
#endif
