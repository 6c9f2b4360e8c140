#pragma once
#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/transport/concept.hpp>

namespace distgrad::detail {

/// A message on its way out, without I/O: lists the memory still to be written, and is told how
/// much of it was. Tensor bytes are never copied. @threads one at a time.
class OutgoingFrame {
 public:
  OutgoingFrame(Message message, SendCompletion done);

  /// Fills `out` with what is left, in order. @return entries used.
  std::size_t gather(std::span<iovec> out) const;
  /// `written` bytes went out. @return how many of them were beyond this frame.
  std::size_t advance(std::size_t written);
  bool is_finished() const { return segment_ == segment_count(); }
  /// Bytes that are not out yet.
  std::uint64_t rest_bytes() const { return rest_bytes_; }
  FrameKind kind() const { return message_.kind; }
  /// Calls the completion. At most once.
  void complete(error_code result) {
    if (auto done = std::move(done_)) done(result);
  }

 private:
  // Segments: header, table of lengths, metadata, then the buffers.
  std::size_t segment_count() const { return 3 + message_.buffers.size(); }
  std::span<std::byte const> segment(std::size_t index) const;

  FrameHeaderBytes header_;
  std::vector<std::uint64_t> lengths_;
  Message message_;
  SendCompletion done_;
  std::size_t segment_ = 0;
  std::size_t offset_ = 0;  // bytes of the current segment that are out
  std::uint64_t rest_bytes_;
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/outgoing_frame.ipp>
#endif
