#pragma once
#include <distgrad/rpc/draft.hpp>

namespace distgrad {

DISTGRAD_DECL Message Draft::seal(FrameKind kind, CallId call, Host& host, Interceptor* interceptor,
                                  CallState const& state, bool is_call) {
  begin_values();
  writer_.patch(values_at_ - sizeof(std::uint64_t),
                std::uint64_t(writer_.size_bytes() - values_at_));
  Message message{.kind = kind, .call = call};
  auto const devices = host.routes().destinations(to_, is_call, tensors_);
  host.pack(writer_, message.buffers, tensors_);
  if (!devices.empty()) {
    message.flags |= device_flag;
    write_devices(writer_, devices);
  }
  if (interceptor) interceptor->leaving(state, to_, is_call, tensors_, writer_);
  message.metadata = writer_.take();
  return message;
}

DISTGRAD_DECL void Arrival::open(Host& host, Interceptor* interceptor, bool is_call) {
  Reader in(std::span<std::byte const>(message_.metadata).subspan(prefix_bytes_));
  values_ = Reader(in.raw(in.number<std::uint64_t>()));
  received_ = host.unpack(in, message_.buffers);
  if (message_.flags & device_flag) {
    auto const devices = read_devices(in, received_.tensors.size());
    host.routes().require_accepted(from_, devices);
    host.place(received_.tensors, devices);
  }
  if (interceptor) state_ = interceptor->arriving(from_, is_call, received_, in);
  if (!in.ok()) throw Error(errc::bad_value, "the message's values are malformed");
}

}  // namespace distgrad
