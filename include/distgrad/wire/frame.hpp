#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <distgrad/config.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/version.hpp>

namespace distgrad {

/// What a frame means. Each room has a range of its own and adds kinds there.
enum class FrameKind : std::uint16_t {
  // transport, 0x00..0x0f: seen by transports only
  hello = 0x01,    ///< first frame of a connection: who connects, job secret
  welcome = 0x02,  ///< its answer
  goodbye = 0x03,  ///< the sender leaves on purpose; the end of the connection is no loss
  // rpc, 0x10..0x1f
  call = 0x10,            ///< run a function, send its result
  reply = 0x11,           ///< the result of a call
  error_reply = 0x12,     ///< the error of a call
  shutdown_ready = 0x18,  ///< to rank 0: this worker wants to leave
  shutdown_check = 0x19,  ///< from rank 0: say whether you are still idle
  shutdown_state = 0x1a,  ///< its answer
  shutdown_leave = 0x1b,  ///< from rank 0: everybody is done
  // rref, 0x20..0x2f
  rref_create = 0x20,        ///< run a function, keep its result
  rref_fetch = 0x21,         ///< send the value
  rref_fork_request = 0x22,  ///< a new user makes itself known to the owner
  rref_child_accept = 0x23,  ///< a child is known to the owner; its parent may go
  rref_user_delete = 0x24,   ///< a user is gone
  rref_ack = 0x25,           ///< answers the three above
  // autograd, 0x30..0x3f
  context_release = 0x30,  ///< forget a context
  // engine, 0x40..0x4f
  gradient = 0x40,         ///< gradients for a send function
  pass_done = 0x41,        ///< to the initiator: this worker's part is complete
  pass_failed = 0x42,      ///< to the initiator: a node, hook or message failed here
  pass_abort = 0x43,       ///< stop the pass and forget it
  pass_query = 0x44,       ///< say what your part of the pass waits for
  pass_status = 0x45,      ///< its answer
  pass_aborted = 0x46,     ///< answers pass_abort: stopped, and what was still awaited
  pass_discover = 0x48,    ///< SMART: these send functions take part
  pass_discovered = 0x49,  ///< its answer: all that follows from them is known
  pass_release = 0x4a,     ///< all that takes part is known: wait for nothing else
  pass_commit = 0x4b,      ///< all parts are complete: make the gradients visible, forget the pass
  pass_committed = 0x4c,   ///< its answer, where one is asked for
};

/// Sizes a worker accepts from its peers; checked before memory is taken.
struct FrameLimits {
  std::uint64_t max_metadata_bytes = bounded(std::uint64_t{64} << 20);
  std::uint64_t max_payload_bytes = bounded(std::uint64_t{1} << 40);
  /// Each takes eight bytes in the frame.
  std::uint32_t max_buffers = static_cast<std::uint32_t>(bounded(std::uint64_t{8} << 20) / 8);

  /// `bytes`, or what DISTGRAD_MAX_FRAME_BYTES allows of them.
  static constexpr std::uint64_t bounded(std::uint64_t bytes) {
    constexpr std::uint64_t most = DISTGRAD_MAX_FRAME_BYTES;
    return most == 0 || bytes < most ? bytes : most;
  }
  /// Whether DISTGRAD_MAX_FRAME_BYTES allows these.
  bool are_allowed() const {
    return bounded(max_metadata_bytes) == max_metadata_bytes &&
           bounded(max_payload_bytes) == max_payload_bytes && bounded(max_buffers) == max_buffers;
  }
};

/// Flag of a frame: tensors of it were, or will be, on a device. The receiver has them land in
/// memory that its devices can copy from.
inline constexpr std::uint32_t device_flag = 1;

/// The fixed start of every frame. On the wire it is 40 bytes, little-endian:
/// magic u32 | version u16 | kind u16 | flags u32 | buffer count u32 | call id u64 |
/// metadata bytes u64 | payload bytes u64; then one u64 length per buffer, the metadata, and the
/// buffers' bytes one after the other.
struct FrameHeader {
  FrameKind kind{};
  std::uint32_t flags = 0;
  std::uint32_t buffer_count = 0;
  CallId call;
  std::uint64_t metadata_bytes = 0;
  /// Sum of the buffers' lengths.
  std::uint64_t payload_bytes = 0;
};

inline constexpr std::uint32_t frame_magic = 0x44475244;  // "DRGD" on the wire
inline constexpr std::size_t frame_header_bytes = 40;
using FrameHeaderBytes = std::array<std::byte, frame_header_bytes>;

DISTGRAD_DECL FrameHeaderBytes encode_frame_header(FrameHeader const& header) noexcept;

/// Reads and checks a header. @return `bad_magic`, `version_mismatch`, `frame_too_large` or
/// success.
DISTGRAD_DECL error_code decode_frame_header(std::span<std::byte const, frame_header_bytes> bytes,
                                             FrameLimits const& limits,
                                             FrameHeader& header) noexcept;

/// Checks the table of buffer lengths (`8 * buffer_count` bytes) against the header.
/// @param lengths receives one length per buffer; must have room for `buffer_count`.
/// @return `bad_message` when they do not add up to the header's payload.
DISTGRAD_DECL error_code decode_buffer_lengths(std::span<std::byte const> bytes,
                                               FrameHeader const& header,
                                               std::span<std::uint64_t> lengths) noexcept;

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/wire/impl/frame.ipp>
#endif
