#pragma once
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <distgrad/core/ids.hpp>
#include <distgrad/serialize/concept.hpp>
#include <distgrad/wire/reader.hpp>
#include <distgrad/wire/writer.hpp>

namespace distgrad {

/// What travels with the work of one call from thread to thread: its autograd context. Rpc keeps
/// it and hands it on, and does not know what it is.
using CallState = std::shared_ptr<void>;

/// Sees every call that leaves or arrives, and every answer. A higher room fills this slot.
/// @threads safe: shared object; called on the thread that sends or decodes.
class Interceptor {
 public:
  virtual ~Interceptor() = default;
  /// A message leaves under `state`. @param tensors those of the message, in order.
  /// @param extends receives what the interceptor of the receiver reads.
  virtual void leaving(CallState const& state, WorkerId to, bool is_call,
                       std::span<at::Tensor const> tensors, Writer& extends) = 0;
  /// A message arrived. It may replace tensors, and must mark those that require gradients.
  /// @return the state the message's handler runs under.
  virtual CallState arriving(WorkerId from, bool is_call, ReceivedTensors& tensors,
                             Reader& extends) = 0;
  /// The state of the calling thread, or null.
  virtual CallState current() const = 0;
  /// Makes `state` the calling thread's. @return what was there before.
  virtual CallState install(CallState state) = 0;
};

/// Runs a scope under a call's state.
class CallStateScope {
 public:
  CallStateScope(Interceptor* interceptor, CallState state) : interceptor_(interceptor) {
    if (interceptor_) before_ = interceptor_->install(std::move(state));
  }
  ~CallStateScope() {
    if (interceptor_) interceptor_->install(std::move(before_));
  }
  CallStateScope(CallStateScope const&) = delete;
  CallStateScope& operator=(CallStateScope const&) = delete;

 private:
  Interceptor* interceptor_;
  CallState before_;
};

}  // namespace distgrad
