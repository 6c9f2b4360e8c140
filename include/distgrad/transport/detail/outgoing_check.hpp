#pragma once
#include <distgrad/wire/message.hpp>

namespace distgrad::detail {

/// Smaller frame kinds are the transport's own.
inline constexpr std::uint16_t first_user_kind = 0x10;

/// What every transport checks before it takes a message: a frame kind that is not the
/// transport's own, and sizes the receiver will accept. A message that fails here harms no
/// connection.
inline error_code check_outgoing(FrameHeader const& header, FrameLimits const& limits) {
  if (static_cast<std::uint16_t>(header.kind) < first_user_kind) return errc::invalid_argument;
  bool const fits = header.metadata_bytes <= limits.max_metadata_bytes &&
                    header.payload_bytes <= limits.max_payload_bytes &&
                    header.buffer_count <= limits.max_buffers;
  return fits ? error_code() : make_error_code(errc::frame_too_large);
}

}  // namespace distgrad::detail
