#pragma once
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>

#include <distgrad/transport/detail/peer.hpp>
#include <distgrad/transport/detail/socket_state.hpp>
#include <distgrad/transport/detail/websocket_channel.hpp>
#include <distgrad/transport/detail/websocket_stream.hpp>

namespace distgrad::detail {

/// A peer at the other end of a WebSocket: a binary message holds whole frames, ours always one.
/// Beast's stream belongs to the I/O thread, which therefore does all the writing; a goodbye leaves
/// as a close frame.
///
/// Only the side that connected pings. Beast stops reading while it waits to answer a ping behind a
/// message that it writes; if both sides did so, neither would read what the other waits to write.
class WebSocketPeer final : public Peer {
 public:
  /// @param ping_interval zero for no pings, and for no notice of silence.
  WebSocketPeer(IoLoop& loop, WorkerId id, milliseconds ping_interval);

  void attach(HandshakeChannel& channel) override;
  bool flush() override;
  void close_socket() override;

 private:
  // With mutex_ held:
  void disconnect(error_code why) override;
  bool gather(OutgoingFrame& frame);

  void retire(std::deque<OutgoingFrame> frames) override;
  void arm_write() override;
  void write_next();
  void on_written(error_code ec, std::size_t count);
  void leave();
  void read();
  void on_read(error_code ec, std::size_t count);
  void go_on();
  void wait_for_tick();
  void on_tick();
  std::shared_ptr<WebSocketPeer> self() {
    return std::static_pointer_cast<WebSocketPeer>(shared_from_this());
  }

  // Guarded by mutex_:
  bool is_writing_ = false;
  std::deque<OutgoingFrame> retired_;  // ended while a write still reads from them
  std::optional<time_point> left_at_;  // the close frame is on its way since
  bool is_closed_ = false;             // and was answered, or never will be

  // The I/O thread's:
  std::optional<WebSocketStream> stream_;
  bool is_client_ = false;
  bool is_gone_ = false;
  std::array<boost::asio::const_buffer, 64> outgoing_;
  std::size_t outgoing_count_ = 0;
  std::array<boost::asio::mutable_buffer, 16> incoming_;
  milliseconds const ping_interval_;
  boost::asio::steady_timer timer_;
  bool is_pinging_ = false;
  bool was_heard_ = false;  // since the last tick
  int silent_ticks_ = 0;
};

/// A larger message goes out in pieces, so that pings get through in between.
inline constexpr std::size_t max_fragment_bytes = std::size_t{1} << 20;
/// A peer that said nothing, and answered no ping, for so many intervals is lost.
inline constexpr int most_silent_ticks = 3;
/// How long a closing side waits for the answer to its close frame once that has arrived. Without
/// the answer a proxy may drop what it has not passed on.
inline constexpr milliseconds close_answer_timeout{100};

/// Bytes of the largest frame within `limits`.
inline std::size_t largest_frame_bytes(FrameLimits const& limits) {
  constexpr auto most = std::numeric_limits<std::size_t>::max();
  std::size_t sum = frame_header_bytes + std::size_t{8} * limits.max_buffers;
  for (auto part : {limits.max_metadata_bytes, limits.max_payload_bytes}) {
    sum += std::min<std::uint64_t>(part, most - sum);
  }
  return sum;
}

inline WebSocketPeer::WebSocketPeer(IoLoop& loop, WorkerId id, milliseconds ping_interval)
    : Peer(loop, id), ping_interval_(ping_interval), timer_(loop.io) {}

inline void WebSocketPeer::attach(HandshakeChannel& channel) {
  auto& opened = static_cast<WebSocketChannel&>(channel);
  bool arm = false;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::connecting) return channel.close();
    channel.finish();
    stream_.emplace(std::move(opened.stream()));
    is_client_ = opened.is_client();
    descriptor_ = stream_->next_layer().native_handle();
    configure_socket(descriptor_);
    state_ = State::open;
    arm = must_arm();
  }
  stream_->read_message_max(largest_frame_bytes(loop_.setup.limits));
  stream_->control_callback([this](auto...) { was_heard_ = true; });
  if (ping_interval_ > milliseconds(0)) wait_for_tick();
  if (arm) arm_write();
  read();
}

inline void WebSocketPeer::arm_write() {
  loop_.dispatch([self = self()] { self->write_next(); });
}

/// Begins to write what is left of the first frame, or a part of it.
inline void WebSocketPeer::write_next() {
  bool is_last = false;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::open) return;
    if (queue_.empty()) {
      write_armed_ = false;
      return;
    }
    if (queue_.front().kind() == FrameKind::goodbye) return leave();
    is_last = gather(queue_.front());
    is_writing_ = true;
  }
  stream_->async_write_some(
      is_last, std::span(outgoing_).first(outgoing_count_),
      [self = self()](error_code ec, std::size_t count) { self->on_written(ec, count); });
}

/// Fills `outgoing_`. @return whether that is all that is left of the frame.
inline bool WebSocketPeer::gather(OutgoingFrame& frame) {
  std::array<iovec, std::tuple_size_v<decltype(outgoing_)>> pieces;
  auto const used = frame.gather(pieces);
  std::size_t total = 0;
  outgoing_count_ = 0;
  for (auto const& piece : std::span(pieces).first(used)) {
    auto const size = std::min(piece.iov_len, max_fragment_bytes - total);
    if (size == 0) break;
    outgoing_[outgoing_count_++] = {piece.iov_base, size};
    total += size;
  }
  return total == frame.rest_bytes();
}

inline void WebSocketPeer::on_written(error_code ec, std::size_t count) {
  Frames finished;
  {
    std::lock_guard lock(mutex_);
    is_writing_ = false;
    retired_.clear();
    // A broken connection is left to the reader, which may still find out why.
    if (state_ != State::open || ec) return;
    auto& frame = queue_.front();
    frame.advance(count);
    if (frame.is_finished()) {
      finished.push_back(std::move(frame));
      queue_.pop_front();
    }
  }
  complete(finished);
  write_next();
}

/// With mutex_ held.
inline void WebSocketPeer::leave() {
  queue_.pop_front();
  left_at_ = Clock::now();
  stream_->async_close(boost::beast::websocket::close_code::normal, [self = self()](error_code) {
    std::lock_guard lock(self->mutex_);
    self->is_closed_ = true;
  });
}

inline void WebSocketPeer::read() {
  if (loop_.closing) return;
  std::array<iovec, std::tuple_size_v<decltype(incoming_)>> pieces;
  auto const used = assembler_.prepare(pieces);
  for (std::size_t i = 0; i < used; ++i) incoming_[i] = {pieces[i].iov_base, pieces[i].iov_len};
  stream_->async_read_some(
      std::span(incoming_).first(used),
      [self = self()](error_code ec, std::size_t count) { self->on_read(ec, count); });
}

inline void WebSocketPeer::on_read(error_code ec, std::size_t count) {
  if (loop_.closing || is_gone_) return;
  was_heard_ = true;
  if (ec) return lose(read_failure(ec, stream_->reason()));
  if (stream_->got_text()) return lose(errc::bad_message);
  take(count);
  go_on();
}

/// Reads on; or, after a pause, first takes what is in the input, as an event of its own.
inline void WebSocketPeer::go_on() {
  if (loop_.closing || is_gone_) return;
  if (assembler_.is_paused()) {
    return loop_.post([self = self()] {
      if (self->loop_.closing || self->is_gone_) return;
      self->take(0);
      self->go_on();
    });
  }
  if (stream_->is_message_done() && !assembler_.is_between_frames()) return lose(errc::bad_message);
  read();
}

inline void WebSocketPeer::wait_for_tick() {
  timer_.expires_after(ping_interval_);
  timer_.async_wait([self = self()](error_code ec) {
    if (!ec && !self->loop_.closing && !self->is_gone_) self->on_tick();
  });
}

/// Several ticks without a word, as this worker may have slept through one of its own.
inline void WebSocketPeer::on_tick() {
  silent_ticks_ = std::exchange(was_heard_, false) ? 0 : silent_ticks_ + 1;
  if (silent_ticks_ == most_silent_ticks) return lose(errc::peer_lost);
  if (is_client_ && !std::exchange(is_pinging_, true)) {
    stream_->async_ping({}, [self = self()](error_code) { self->is_pinging_ = false; });
  }
  wait_for_tick();
}

/// Tells the peer why, where it still listens and no message is half written.
inline void WebSocketPeer::disconnect(error_code why) {
  is_gone_ = true;
  timer_.cancel();
  if (!stream_) return;
  if (!stream_->is_open() || is_writing_) return close_socket();
  stream_->async_close(close_code_of(why), [self = self()](error_code) { self->close_socket(); });
}

inline void WebSocketPeer::retire(std::deque<OutgoingFrame> frames) {
  std::lock_guard lock(mutex_);
  if (is_writing_) retired_ = std::move(frames);
}

inline bool WebSocketPeer::flush() {
  bool arm = false;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::open || is_closed_ || has_ended(descriptor_)) return true;
    bool const is_late = left_at_ && Clock::now() - *left_at_ > close_answer_timeout;
    if (is_late && !has_unacknowledged(descriptor_)) return true;
    arm = must_arm();
  }
  if (arm) arm_write();
  return false;
}

inline void WebSocketPeer::close_socket() {
  error_code ignored;
  timer_.cancel();
  if (stream_) stream_->next_layer().close(ignored);
}

}  // namespace distgrad::detail
