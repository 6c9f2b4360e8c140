#pragma once
#include <cstring>

#include <distgrad/wire/frame.hpp>

namespace distgrad {
namespace detail {

template <class T>
void put(std::byte*& at, T value) noexcept {
  std::memcpy(at, &value, sizeof value);
  at += sizeof value;
}

template <class T>
T get(std::byte const*& at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

}  // namespace detail

DISTGRAD_DECL FrameHeaderBytes encode_frame_header(FrameHeader const& header) noexcept {
  FrameHeaderBytes bytes;
  auto* at = bytes.data();
  detail::put(at, frame_magic);
  detail::put(at, std::uint16_t{protocol_version});
  detail::put(at, static_cast<std::uint16_t>(header.kind));
  detail::put(at, header.flags);
  detail::put(at, header.buffer_count);
  detail::put(at, header.call.value);
  detail::put(at, header.metadata_bytes);
  detail::put(at, header.payload_bytes);
  return bytes;
}

DISTGRAD_DECL error_code decode_frame_header(std::span<std::byte const, frame_header_bytes> bytes,
                                             FrameLimits const& limits,
                                             FrameHeader& header) noexcept {
  auto const* at = bytes.data();
  if (detail::get<std::uint32_t>(at) != frame_magic) return errc::bad_magic;
  if (detail::get<std::uint16_t>(at) != protocol_version) return errc::version_mismatch;
  header.kind = static_cast<FrameKind>(detail::get<std::uint16_t>(at));
  header.flags = detail::get<std::uint32_t>(at);
  header.buffer_count = detail::get<std::uint32_t>(at);
  header.call.value = detail::get<std::uint64_t>(at);
  header.metadata_bytes = detail::get<std::uint64_t>(at);
  header.payload_bytes = detail::get<std::uint64_t>(at);
  if (header.metadata_bytes > limits.max_metadata_bytes ||
      header.payload_bytes > limits.max_payload_bytes || header.buffer_count > limits.max_buffers) {
    return errc::frame_too_large;
  }
  return {};
}

DISTGRAD_DECL error_code decode_buffer_lengths(std::span<std::byte const> bytes,
                                               FrameHeader const& header,
                                               std::span<std::uint64_t> lengths) noexcept {
  if (bytes.size() != header.buffer_count * sizeof(std::uint64_t) ||
      lengths.size() != header.buffer_count) {
    return errc::bad_message;
  }
  std::uint64_t sum = 0;
  for (auto const* at = bytes.data(); auto& length : lengths) {
    length = detail::get<std::uint64_t>(at);
    if (length > header.payload_bytes - sum) return errc::bad_message;
    sum += length;
  }
  return sum == header.payload_bytes ? error_code() : make_error_code(errc::bad_message);
}

}  // namespace distgrad
