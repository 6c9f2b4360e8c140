#pragma once
#include <algorithm>

#include <distgrad/transport/detail/landing.hpp>
#include <distgrad/transport/detail/outgoing_frame.hpp>

namespace distgrad::detail {

DISTGRAD_DECL OutgoingFrame::OutgoingFrame(Message message, SendCompletion done)
    : lengths_(buffer_lengths(message.buffers)),
      message_(std::move(message)),
      done_(std::move(done)) {
  auto const header = message_.header();
  header_ = encode_frame_header(header);
  rest_bytes_ = frame_header_bytes + std::as_bytes(std::span(lengths_)).size() +
                header.metadata_bytes + header.payload_bytes;
}

DISTGRAD_DECL std::span<std::byte const> OutgoingFrame::segment(std::size_t index) const {
  switch (index) {
    case 0: return header_;
    case 1: return std::as_bytes(std::span(lengths_));
    case 2: return message_.metadata;
    default: return message_.buffers[index - 3].bytes();
  }
}

DISTGRAD_DECL std::size_t OutgoingFrame::gather(std::span<iovec> out) const {
  std::size_t used = 0;
  auto offset = offset_;
  for (auto i = segment_; i < segment_count() && used < out.size(); ++i) {
    auto const rest = segment(i).subspan(offset);
    offset = 0;
    if (!rest.empty()) out[used++] = {const_cast<std::byte*>(rest.data()), rest.size()};
  }
  return used;
}

DISTGRAD_DECL std::size_t OutgoingFrame::advance(std::size_t written) {
  while (!is_finished()) {
    auto const step = std::min(written, segment(segment_).size() - offset_);
    offset_ += step;
    written -= step;
    rest_bytes_ -= step;
    if (offset_ < segment(segment_).size()) break;
    ++segment_;
    offset_ = 0;
  }
  return written;
}

}  // namespace distgrad::detail
