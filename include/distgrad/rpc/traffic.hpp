#pragma once
#include <cstdint>

#include <distgrad/observe/metrics.hpp>
#include <distgrad/wire/message.hpp>

namespace distgrad {

/// As what a message is counted.
constexpr TrafficKind traffic_kind(FrameKind kind) {
  switch (kind) {
    case FrameKind::call:
    case FrameKind::rref_create:
    case FrameKind::rref_fetch: return TrafficKind::call;
    case FrameKind::reply:
    case FrameKind::error_reply: return TrafficKind::answer;
    case FrameKind::rref_fork_request:
    case FrameKind::rref_child_accept:
    case FrameKind::rref_user_delete:
    case FrameKind::rref_ack: return TrafficKind::rref;
    case FrameKind::gradient: return TrafficKind::gradient;
    default: return TrafficKind::control;
  }
}

/// Length of the frame that carries `message`, whatever the transport makes of it.
inline std::uint64_t frame_bytes(Message const& message) {
  auto const header = message.header();
  return frame_header_bytes + header.buffer_count * sizeof(std::uint64_t) + header.metadata_bytes +
         header.payload_bytes;
}

}  // namespace distgrad
