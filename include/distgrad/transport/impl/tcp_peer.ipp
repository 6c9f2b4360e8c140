#pragma once
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include <boost/asio/buffer.hpp>

#include <distgrad/transport/detail/socket_state.hpp>
#include <distgrad/transport/detail/tcp_channel.hpp>
#include <distgrad/transport/detail/tcp_peer.hpp>

namespace distgrad::detail {

/// Pieces of memory per system call. More do not make it faster.
inline constexpr std::size_t pieces_per_call = 64;
/// After so much the I/O thread turns to its other connections.
inline constexpr std::size_t bytes_per_turn = std::size_t{8} << 20;
inline constexpr int reads_per_turn = 16;

inline bool is_would_block(int number) noexcept {
  return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

/// Writes as much as the kernel takes now.
DISTGRAD_DECL void TcpPeer::write_directly(OutgoingFrame& frame) {
  std::array<iovec, pieces_per_call> pieces;
  while (!frame.is_finished()) {
    auto const written = write(std::span(pieces).first(frame.gather(pieces)));
    if (written <= 0) return;
    frame.advance(static_cast<std::size_t>(written));
  }
}

DISTGRAD_DECL void TcpPeer::write_queue(Frames& finished) {
  std::array<iovec, pieces_per_call> pieces;
  for (std::size_t total = 0; !queue_.empty() && total < bytes_per_turn;) {
    std::size_t used = 0;
    for (auto f = queue_.begin(); f != queue_.end() && used < pieces.size(); ++f) {
      used += f->gather(std::span(pieces).subspan(used));
    }
    auto const written = write(std::span(pieces).first(used));
    if (written <= 0) return;
    total += static_cast<std::size_t>(written);
    auto rest = static_cast<std::size_t>(written);
    while (!queue_.empty()) {
      rest = queue_.front().advance(rest);
      if (!queue_.front().is_finished()) break;
      finished.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
  }
}

/// @return bytes written, or nothing when the kernel takes none now. A broken connection, which
/// takes none any more, is left to the reader: it may still find a goodbye in what has arrived.
DISTGRAD_DECL std::ptrdiff_t TcpPeer::write(std::span<iovec> pieces) {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  for (;;) {
    auto const written = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written >= 0) return written;
    if (errno == EINTR) continue;
    if (!is_would_block(errno)) {
      write_armed_ = true;  // not to be armed again: it would be writable for ever
      ::shutdown(descriptor_, SHUT_RDWR);
    }
    return 0;
  }
}

DISTGRAD_DECL void TcpPeer::arm_write() {
  loop_.dispatch([self = self()] {
    if (!self->socket_ || !self->socket_->is_open()) return;
    self->socket_->async_wait(Socket::wait_write, [self](error_code ec) {
      if (!ec) self->on_writable();
    });
  });
}

DISTGRAD_DECL void TcpPeer::on_writable() {
  Frames finished;
  bool arm = false;
  {
    std::lock_guard lock(mutex_);
    write_armed_ = false;
    if (state_ == State::open) write_queue(finished);
    arm = must_arm();
  }
  if (arm) arm_write();
  complete(finished);
}

DISTGRAD_DECL void TcpPeer::attach(HandshakeChannel& channel) {
  Frames finished;
  bool arm = false;
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::connecting) return channel.close();
    channel.finish();
    socket_.emplace(std::move(channel.socket()));
    error_code ignored;
    socket_->non_blocking(true, ignored);
    descriptor_ = socket_->native_handle();
    configure_socket(descriptor_);
    state_ = State::open;
    write_queue(finished);
    arm = must_arm();
  }
  if (arm) arm_write();
  complete(finished);
  read();
}

DISTGRAD_DECL void TcpPeer::read() {
  if (loop_.closing || !socket_->is_open()) return;
  std::array<iovec, 2> pieces;
  assembler_.prepare(pieces);
  asked_bytes_ = pieces[0].iov_len;
  socket_->async_read_some(
      boost::asio::buffer(pieces[0].iov_base, asked_bytes_),
      [self = self()](error_code ec, std::size_t count) { self->on_read(ec, count); });
}

DISTGRAD_DECL void TcpPeer::on_read(error_code ec, std::size_t count) {
  if (loop_.closing || !socket_->is_open()) return;
  if (ec) return lose(errc::peer_lost);
  bool more = take(count) && count == asked_bytes_;
  for (int turn = 0; more && turn < reads_per_turn; ++turn) more = read_more();
  go_on();
}

/// Reads on; or, after a pause, first takes what is in the input, as an event of its own.
DISTGRAD_DECL void TcpPeer::go_on() {
  if (loop_.closing) return;
  if (!assembler_.is_paused()) return read();
  loop_.post([self = self()] {
    if (self->loop_.closing || !self->socket_->is_open()) return;
    self->take(0);
    self->go_on();
  });
}

/// One read without waiting, into everything the frame still lacks.
/// @return whether there may be more.
DISTGRAD_DECL bool TcpPeer::read_more() {
  std::array<iovec, pieces_per_call> pieces;
  auto const used = assembler_.prepare(pieces);
  std::size_t asked = 0;
  for (auto const& piece : std::span(pieces).first(used)) asked += piece.iov_len;
  auto const got = ::readv(socket_->native_handle(), pieces.data(), static_cast<int>(used));
  // The end and errors show again in the next asynchronous read.
  if (got <= 0) return false;
  return take(static_cast<std::size_t>(got)) && static_cast<std::size_t>(got) == asked;
}

DISTGRAD_DECL void TcpPeer::disconnect(error_code) { close_socket(); }

DISTGRAD_DECL bool TcpPeer::flush() {
  Frames finished;
  bool has_arrived = true;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::open) {
      write_queue(finished);
      has_arrived = has_ended(descriptor_) || (queue_.empty() && !has_unacknowledged(descriptor_));
    }
  }
  complete(finished);
  return has_arrived;
}

DISTGRAD_DECL void TcpPeer::close_socket() {
  error_code ignored;
  if (socket_) socket_->close(ignored);
}

}  // namespace distgrad::detail
