#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include <distgrad/core/buffer.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/wire/frame.hpp>

namespace distgrad {

/// What a transport carries: a kind, the call it belongs to, encoded values, and the payloads of
/// tensors, which are never copied together.
struct Message {
  FrameKind kind{};
  std::uint32_t flags = 0;
  CallId call = {};
  std::vector<std::byte> metadata = {};
  std::vector<Buffer> buffers = {};

  /// The header that stands before this message on the wire.
  FrameHeader header() const {
    FrameHeader h{kind, flags,           static_cast<std::uint32_t>(buffers.size()),
                  call, metadata.size(), 0};
    for (auto const& b : buffers) h.payload_bytes += b.size_bytes();
    return h;
  }
};

}  // namespace distgrad
