#pragma once
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <distgrad/config.hpp>
#include <distgrad/core/services.hpp>
#include <distgrad/rpc/host.hpp>
#include <distgrad/rpc/interceptor.hpp>
#include <distgrad/serialize/codec.hpp>
#include <distgrad/wire/message.hpp>
#include <distgrad/wire/writer.hpp>

namespace distgrad {

/// A call or answer being written. Its metadata is
/// prefix (what the kind of frame needs) | bytes of values u64 | values | tensor table |
/// with `device_flag`: the receiver's device of each tensor | extension.
/// @threads one thread at a time.
class Draft {
 public:
  Draft(WorkerId to, Services const& services) : to_(to), services_(services) {}
  Draft(Draft&&) = default;
  /// A draft that was never sealed undoes what its values changed here.
  ~Draft() { run_all(if_undelivered_); }

  /// What stands before the values; write it before the first value.
  Writer& prefix() { return writer_; }

  template <class T>
  void value(T const& v) {
    begin_values();
    Encoder out = encoder();
    Codec<T>::encode(out, v);
  }
  /// For values whose type is erased.
  Encoder encoder() {
    begin_values();
    return Encoder{writer_, tensors_, to_, services_, &if_undelivered_};
  }

  /// Adds the tensors and what the interceptor says of them.
  Message seal(FrameKind kind, CallId call, Host& host, Interceptor* interceptor,
               CallState const& state, bool is_call);

  /// After sealing: what to do if the message is certain never to be decoded.
  std::vector<unique_function<void()>> take_if_undelivered() {
    return std::exchange(if_undelivered_, {});
  }
  static void run_all(std::vector<unique_function<void()>>& undo) noexcept {
    for (auto& step : std::exchange(undo, {})) step();
  }

  WorkerId to() const { return to_; }

 private:
  void begin_values() {
    if (values_at_ != 0) return;
    writer_.number(std::uint64_t{0});
    values_at_ = writer_.size_bytes();
  }

  WorkerId to_;
  Services const& services_;
  Writer writer_;
  std::vector<at::Tensor> tensors_;
  std::vector<unique_function<void()>> if_undelivered_;
  std::size_t values_at_ = 0;
};

/// Whether `decoder` read all there was, and nothing more.
inline bool values_end(Decoder const& decoder) {
  return decoder.reader.ok() && decoder.reader.at_end();
}

/// A call or answer being read: what `Draft` wrote, on the other side.
/// @threads one thread at a time.
class Arrival {
 public:
  /// @param prefix_bytes how much of the metadata the prefix took.
  Arrival(WorkerId from, Message message, std::size_t prefix_bytes)
      : from_(from), message_(std::move(message)), prefix_bytes_(prefix_bytes) {}

  /// Reads tensors and extension. @throws Error `bad_value`.
  void open(Host& host, Interceptor* interceptor, bool is_call);
  /// Reads the values. The arrival must outlive the decoder.
  Decoder decoder(Services const& services) {
    return Decoder{values_, received_.tensors, from_, services};
  }

  WorkerId from() const { return from_; }
  CallId call() const { return message_.call; }
  FrameKind kind() const { return message_.kind; }
  /// The state to handle this message under; known once it is open.
  CallState const& state() const { return state_; }

 private:
  WorkerId from_;
  Message message_;
  std::size_t prefix_bytes_;
  Reader values_{{}};
  ReceivedTensors received_;
  CallState state_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rpc/impl/draft.ipp>
#endif
