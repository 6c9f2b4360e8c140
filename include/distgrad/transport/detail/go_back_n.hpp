#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include <distgrad/core/deadline.hpp>

// Pieces of a stream over a line that loses some: numbered, acknowledged up to the first missing
// one, and sent again from there. The receiver keeps nothing, which a controller's memory likes;
// the price is that after a loss up to a window of pieces travels twice. Without I/O.
namespace distgrad::detail {

/// How long to wait for an acknowledgement before sending again. @source RFC 6298
class AckTimer {
 public:
  static constexpr Clock::duration shortest = std::chrono::milliseconds(10);
  static constexpr Clock::duration longest = std::chrono::seconds(5);

  Clock::duration timeout() const { return std::min(timeout_ * (1 << doubled_), longest); }
  /// A piece that was sent once was acknowledged after `round_trip`.
  void sample(Clock::duration round_trip) {
    if (smoothed_ == Clock::duration::zero()) {
      smoothed_ = round_trip;
      variation_ = round_trip / 2;
    } else {
      auto const error = round_trip > smoothed_ ? round_trip - smoothed_ : smoothed_ - round_trip;
      variation_ += (error - variation_) / 4;
      smoothed_ += (round_trip - smoothed_) / 8;
    }
    timeout_ = std::clamp(smoothed_ + 4 * variation_, shortest, longest);
    doubled_ = 0;
  }
  void expired() { doubled_ = std::min(doubled_ + 1, 10); }

 private:
  Clock::duration timeout_ = std::chrono::milliseconds(200);
  Clock::duration smoothed_{}, variation_{};
  int doubled_ = 0;
};

/// The sending half.
///
///   event                        | what happens
///   -----------------------------+------------------------------------------------------------
///   add                          | the piece is sent when its turn comes
///   acknowledged up to n         | pieces below n are forgotten; the timer starts anew
///   the receiver reports a gap   | all pieces from the first unacknowledged one are sent again
///   no progress for `timeout`    | the same, and the timeout doubles
///
/// @threads one at a time.
class GoBackNSender {
 public:
  struct Piece {
    std::uint32_t number = 0;
    std::vector<std::byte> bytes;
    /// Frames whose last byte is in this piece.
    std::size_t frames_ended = 0;
    time_point sent_at;
    int times_sent = 0;
  };

  explicit GoBackNSender(std::size_t window_pieces) : window_pieces_(window_pieces) {}

  bool has_room() const { return window_.size() < window_pieces_; }
  bool is_empty() const { return window_.empty(); }
  void add(std::vector<std::byte> bytes, std::size_t frames_ended) {
    window_.push_back({first_ + static_cast<std::uint32_t>(window_.size()),
                       std::move(bytes),
                       frames_ended,
                       {},
                       0});
  }
  bool has_next() const { return next_ < window_.size(); }
  /// The piece whose turn it is; valid until the next call of another function.
  Piece const& next(time_point now) {
    if (next_ == 0) deadline_ = now + timer_.timeout();
    if (in_flight_ == 0) progress_at_ = now;
    auto& piece = window_[next_++];
    piece.sent_at = now;
    ++piece.times_sent;
    in_flight_ = std::max(in_flight_, next_);
    return piece;
  }
  /// @return frames that have arrived whole.
  std::size_t acknowledged(std::uint32_t up_to, time_point now) {
    std::size_t const count = static_cast<std::uint32_t>(up_to - first_);
    if (count == 0 || count > in_flight_) return 0;  // nothing new, or an old packet
    std::size_t frames = 0;
    for (std::size_t i = 0; i < count; ++i) frames += window_[i].frames_ended;
    // Of a piece that was sent twice nobody knows which of the two was acknowledged.
    if (auto const& last = window_[count - 1]; last.times_sent == 1) {
      timer_.sample(now - last.sent_at);
    }
    window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(count));
    first_ = up_to;
    next_ -= std::min(next_, count);
    in_flight_ -= count;
    progress_at_ = now;
    deadline_ = now + timer_.timeout();
    return frames;
  }
  /// The receiver has seen a piece after `expected`, which it lacks.
  void gap_reported(std::uint32_t expected) {
    if (expected == first_) next_ = 0;
  }
  /// Sends all again when the time has come. @return whether it had.
  bool tick(time_point now) {
    if (!next_deadline() || now < deadline_) return false;
    timer_.expired();
    next_ = 0;
    deadline_ = now + timer_.timeout();
    return true;
  }
  /// When `tick` wants to be called.
  std::optional<time_point> next_deadline() const {
    if (in_flight_ == 0) return std::nullopt;
    return deadline_;
  }
  /// Since when the receiver has acknowledged nothing; now while nothing is under way.
  time_point waits_since(time_point now) const { return in_flight_ == 0 ? now : progress_at_; }

 private:
  std::size_t window_pieces_;
  std::deque<Piece> window_;
  std::uint32_t first_ = 0;    // number of window_[0]
  std::size_t next_ = 0;       // index of the next piece to send
  std::size_t in_flight_ = 0;  // pieces that were sent at least once
  time_point deadline_, progress_at_;
  AckTimer timer_;
};

/// The receiving half. @threads one at a time.
class GoBackNReceiver {
 public:
  enum class Answer { none, ack, gap };

  std::uint32_t expected() const { return expected_; }
  /// Piece `number` came. @return whether it is the next one.
  bool accept(std::uint32_t number) {
    if (number == expected_) {
      ++expected_;
      in_gap_ = false;
      answer_ = Answer::ack;
      return true;
    }
    bool const ahead = static_cast<std::int32_t>(number - expected_) > 0;
    if (!ahead) {
      answer_ = Answer::ack;  // its acknowledgement was lost
    } else if (!in_gap_ || static_cast<std::int32_t>(number - newest_) <= 0) {
      answer_ = Answer::gap;  // once for each time that the sender comes past it
    }
    if (ahead) {
      in_gap_ = true;
      newest_ = number;
    }
    return false;
  }
  Answer answer() const { return answer_; }
  /// An answer was sent, alone or with data.
  void answered() { answer_ = Answer::none; }

 private:
  std::uint32_t expected_ = 0;
  std::uint32_t newest_ = 0;
  bool in_gap_ = false;
  Answer answer_ = Answer::none;
};

}  // namespace distgrad::detail
