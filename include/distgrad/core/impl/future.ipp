#pragma once
#include <distgrad/core/blocking.hpp>
#include <distgrad/core/future.hpp>

namespace distgrad::detail {

DISTGRAD_DECL bool FutureStateBase::is_ready() const {
  std::lock_guard lock(mutex_);
  return ready_;
}

DISTGRAD_DECL DeviceOrder* FutureStateBase::follow() const {
  if (mark_) mark_->follow();  // it does not change any more
  return mark_ ? host_->devices() : nullptr;
}

DISTGRAD_DECL std::exception_ptr FutureStateBase::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

DISTGRAD_DECL bool FutureStateBase::wait(Deadline deadline) {
  if (is_ready()) return true;
  while (host_ && !deadline.has_passed() && host_->drive(deadline.at)) {
    if (is_ready()) return true;
  }
  BlockingRegion region;  // a pool thread that sleeps here is replaced
  std::unique_lock lock(mutex_);
  ++waiters_;
  if (deadline.is_never()) {
    changed_.wait(lock, [this] { return ready_; });
  } else {
    changed_.wait_until(lock, deadline.at, [this] { return ready_; });
  }
  --waiters_;
  return ready_;
}

DISTGRAD_DECL void FutureStateBase::on_ready(unique_function<void()> continuation) {
  if (host_) continuation = host_->carry(std::move(continuation));
  {
    std::lock_guard lock(mutex_);
    if (!ready_) {
      continuations_.push_back(std::move(continuation));
      return;
    }
  }
  dispatch(std::move(continuation));
}

DISTGRAD_DECL void FutureStateBase::dispatch(unique_function<void()> continuation) {
  if (host_) {
    host_->post(std::move(continuation));
  } else {
    continuation();
  }
}

DISTGRAD_DECL bool FutureStateBase::set_error(std::exception_ptr error) {
  return settle([&] { error_ = std::move(error); });
}

DISTGRAD_DECL void FutureStateBase::on_cancel(unique_function<void()> withdraw) {
  std::lock_guard lock(mutex_);
  if (!ready_) withdraw_ = std::move(withdraw);
}

DISTGRAD_DECL bool FutureStateBase::cancel() {
  unique_function<void()> withdraw;
  {
    std::lock_guard lock(mutex_);
    if (ready_) return false;
    withdraw = std::move(withdraw_);
  }
  auto const error = std::make_exception_ptr(Error(errc::cancelled, "cancelled by its caller"));
  bool const withdrawn = set_error(error);
  if (withdrawn && withdraw) withdraw();
  return withdrawn;
}

DISTGRAD_DECL void FutureStateBase::promise_dropped() noexcept {
  if (is_ready()) return;
  set_error(std::make_exception_ptr(
      Error(errc::closed, "the promise went away before it was fulfilled")));
}

}  // namespace distgrad::detail
