#pragma once
#include <mutex>

#include <distgrad/core/future.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/queue/stream_order.hpp>
#include <distgrad/rpc/function.hpp>

namespace distgrad {

/// A value on the worker that owns it, or the promise of it while the function that makes it runs.
/// @threads safe: shared object, as `Promise`.
class OwnerRRef {
 public:
  /// @param streams orders the devices of the engine; null if there are none. It lives as long as
  /// `host`.
  OwnerRRef(RRefId id, std::shared_ptr<FutureHost> host, StreamOrder* streams = nullptr)
      : id_(id), host_(host), streams_(streams), promise_(host), value_(promise_.future()) {}
  ~OwnerRRef() {
    if (streams_) uses_.leave(*streams_);
  }

  RRefId id() const { return id_; }
  /// Ready once the value was made, or could not be.
  Future<ErasedValue> const& value() const { return value_; }

  /// The calling thread is about to use the value: on devices, after all other uses so far.
  void enter() {
    if (!streams_) return;
    std::lock_guard const lock(mutex_);
    uses_.enter(*streams_);
  }

  void set_value(ErasedValue value) {
    enter();
    promise_.set_value(std::move(value));
  }
  void set_error(std::exception_ptr error) { promise_.set_error(std::move(error)); }

 private:
  RRefId id_;
  std::shared_ptr<FutureHost> host_;
  StreamOrder* streams_;
  std::mutex mutex_;
  StreamUses uses_;
  Promise<ErasedValue> promise_;
  Future<ErasedValue> value_;
};

}  // namespace distgrad
