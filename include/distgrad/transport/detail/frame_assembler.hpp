#pragma once
#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/transport/concept.hpp>

namespace distgrad::detail {

/// Where an assembler's results go. Functions do not throw.
class AssemblerSink {
 public:
  virtual ~AssemblerSink() = default;
  virtual std::vector<Buffer> landing(FrameHeader const& header,
                                      std::span<std::byte const> metadata,
                                      std::span<std::uint64_t const> lengths) noexcept = 0;
  /// @return false to stop: the rest of the input is ignored.
  virtual bool on_frame(Message message) noexcept = 0;
  /// Asked before each frame. @return true to leave it in the input until the next `commit`.
  virtual bool must_pause() noexcept { return false; }
};

/// Makes frames out of a stream of bytes, without I/O: says where the next bytes shall be put and
/// is told how many came. Small frames pass through one input buffer, many per read; what of a
/// frame is not in there yet lands where it belongs without a copy.
///
///   stage     | ends when            | then
///   ----------+----------------------+---------------------------------------------
///   header    | 40 bytes             | checked against the limits; -> table
///   table     | 8 bytes per buffer   | must add up; -> metadata
///   metadata  | metadata_bytes       | the sink names the landing; -> payload or discard
///   payload   | landing is full      | message delivered; -> header
///   discard   | payload_bytes passed | -> header (the sink refused)
///
/// An error is for good. @threads one at a time.
class FrameAssembler {
 public:
  /// As much as a small program's frame needs, but room for some of the smallest ones.
  static constexpr std::size_t input_bytes =
      std::max<std::size_t>(FrameLimits::bounded(64 * 1024), 1024);

  FrameAssembler(FrameLimits const& limits, AssemblerSink& sink)
      : limits_(limits), sink_(sink), input_(input_bytes) {}

  /// Where the next bytes shall land, in order: at least one place. @return entries used.
  std::size_t prepare(std::span<iovec> out);
  /// `count` bytes were put there. @return why the stream is no sequence of frames, if so.
  error_code commit(std::size_t count);
  bool is_stopped() const { return stage_ == Stage::stopped; }
  /// The input holds more, which `commit(0)` goes on with.
  bool is_paused() const { return is_paused_; }
  /// Whether all that came were whole frames.
  bool is_between_frames() const { return stage_ == Stage::header && begin_ == end_; }

 private:
  enum class Stage { header, table, metadata, payload, discard, stopped };

  void fill(std::span<std::byte> target);
  bool is_filled() const { return target_ == targets_.size() && discard_bytes_ == 0; }
  void drain_input();
  error_code step(bool& waiting);
  error_code read_header(bool& waiting);
  error_code read_table();
  void choose_landing();
  void deliver();

  FrameLimits limits_;
  AssemblerSink& sink_;
  Stage stage_ = Stage::header;
  bool is_paused_ = false;

  std::vector<std::byte> input_;
  std::size_t begin_ = 0, end_ = 0;  // unread part of input_

  // What the current stage fills: targets_[target_] from target_offset_ on.
  std::vector<std::span<std::byte>> targets_;
  std::size_t target_ = 0, target_offset_ = 0;
  std::uint64_t discard_bytes_ = 0;

  FrameHeader header_;
  std::vector<std::uint64_t> lengths_;
  Message message_;
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/frame_assembler.ipp>
#endif
