#pragma once
#include <algorithm>
#include <cstring>
#include <utility>

#include <distgrad/transport/detail/frame_assembler.hpp>
#include <distgrad/transport/detail/landing.hpp>

namespace distgrad::detail {

DISTGRAD_DECL std::size_t FrameAssembler::prepare(std::span<iovec> out) {
  std::size_t used = 0;
  auto offset = target_offset_;
  auto next = target_;
  // The last place is kept for the input buffer.
  for (; next < targets_.size() && used + 1 < out.size(); ++next, offset = 0) {
    auto const rest = targets_[next].subspan(offset);
    out[used++] = {rest.data(), rest.size()};
  }
  if (next < targets_.size()) return used;
  if (begin_ > 0) {
    std::memmove(input_.data(), input_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  out[used++] = {input_.data() + end_, input_.size() - end_};
  return used;
}

DISTGRAD_DECL error_code FrameAssembler::commit(std::size_t count) {
  while (count > 0 && target_ < targets_.size()) {
    auto const step = std::min(count, targets_[target_].size() - target_offset_);
    target_offset_ += step;
    count -= step;
    if (target_offset_ == targets_[target_].size()) ++target_, target_offset_ = 0;
  }
  end_ += count;
  bool waiting = false;
  while (!waiting && stage_ != Stage::stopped) {
    drain_input();
    is_paused_ = stage_ == Stage::header && begin_ < end_ && sink_.must_pause();
    if (is_paused_ || !is_filled()) break;
    if (auto const bad = step(waiting)) {
      stage_ = Stage::stopped;
      return bad;
    }
  }
  return {};
}

/// Moves input to the targets, or throws it away when the payload was refused.
DISTGRAD_DECL void FrameAssembler::drain_input() {
  while (begin_ < end_ && target_ < targets_.size()) {
    auto const target = targets_[target_].subspan(target_offset_);
    auto const step = std::min(end_ - begin_, target.size());
    std::memcpy(target.data(), input_.data() + begin_, step);
    begin_ += step;
    target_offset_ += step;
    if (step == target.size()) ++target_, target_offset_ = 0;
  }
  auto const dropped = std::min<std::uint64_t>(end_ - begin_, discard_bytes_);
  begin_ += static_cast<std::size_t>(dropped);
  discard_bytes_ -= dropped;
  if (begin_ == end_) begin_ = end_ = 0;
}

DISTGRAD_DECL void FrameAssembler::fill(std::span<std::byte> target) {
  if (!target.empty()) targets_.push_back(target);
}

/// The current stage has all its bytes: takes them and enters the next.
DISTGRAD_DECL error_code FrameAssembler::step(bool& waiting) {
  targets_.clear();
  target_ = target_offset_ = 0;
  switch (stage_) {
    case Stage::header: return read_header(waiting);
    case Stage::table: return read_table();
    case Stage::metadata: choose_landing(); break;
    case Stage::payload: deliver(); break;
    case Stage::discard: stage_ = Stage::header; break;
    case Stage::stopped: break;
  }
  return {};
}

DISTGRAD_DECL error_code FrameAssembler::read_header(bool& waiting) {
  if (end_ - begin_ < frame_header_bytes) {
    waiting = true;
    return {};
  }
  std::span<std::byte const, frame_header_bytes> const bytes(input_.data() + begin_,
                                                             frame_header_bytes);
  if (auto const bad = decode_frame_header(bytes, limits_, header_)) return bad;
  begin_ += frame_header_bytes;
  lengths_.resize(header_.buffer_count);
  fill(std::as_writable_bytes(std::span(lengths_)));
  stage_ = Stage::table;
  return {};
}

DISTGRAD_DECL error_code FrameAssembler::read_table() {
  // The table was read into lengths_ itself, which is sound on little-endian hosts only; Writer
  // asserts that.
  auto const bytes = std::as_bytes(std::span(lengths_));
  if (auto const bad = decode_buffer_lengths(bytes, header_, lengths_)) return bad;
  message_ = Message{header_.kind, header_.flags, header_.call, {}, {}};
  message_.metadata.resize(static_cast<std::size_t>(header_.metadata_bytes));
  fill(message_.metadata);
  stage_ = Stage::metadata;
  return {};
}

DISTGRAD_DECL void FrameAssembler::choose_landing() {
  stage_ = Stage::payload;
  if (lengths_.empty()) return;
  message_.buffers = sink_.landing(header_, message_.metadata, lengths_);
  if (!fit_landing(message_.buffers, lengths_)) {
    message_ = {};
    discard_bytes_ = header_.payload_bytes;
    stage_ = Stage::discard;
    return;
  }
  for (auto const& buffer : message_.buffers) fill(buffer.bytes());
}

DISTGRAD_DECL void FrameAssembler::deliver() {
  stage_ = Stage::header;
  if (!sink_.on_frame(std::move(message_))) stage_ = Stage::stopped;
  message_ = {};
}

}  // namespace distgrad::detail
