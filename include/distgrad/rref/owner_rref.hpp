#pragma once
#include <distgrad/core/future.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/rpc/function.hpp>

namespace distgrad {

/// A value on the worker that owns it, or the promise of it while the function that makes it runs.
/// @threads safe: shared object, as `Promise`.
class OwnerRRef {
 public:
  OwnerRRef(RRefId id, std::shared_ptr<FutureHost> host)
      : id_(id), promise_(std::move(host)), value_(promise_.future()) {}

  RRefId id() const { return id_; }
  /// Ready once the value was made, or could not be.
  Future<ErasedValue> const& value() const { return value_; }

  void set_value(ErasedValue value) { promise_.set_value(std::move(value)); }
  void set_error(std::exception_ptr error) { promise_.set_error(std::move(error)); }

 private:
  RRefId id_;
  Promise<ErasedValue> promise_;
  Future<ErasedValue> value_;
};

}  // namespace distgrad
