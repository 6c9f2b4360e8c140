#pragma once
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <exception>
#include <utility>

#include <boost/asio/buffer.hpp>

#include <distgrad/transport/detail/outgoing_check.hpp>
#include <distgrad/transport/detail/tcp_peer.hpp>

namespace distgrad::detail {

/// Pieces of memory per system call. More do not make it faster.
inline constexpr std::size_t pieces_per_call = 64;
/// After so much the I/O thread turns to its other connections.
inline constexpr std::size_t bytes_per_turn = std::size_t{8} << 20;
inline constexpr int reads_per_turn = 16;

/// Small messages go out at once, and a host that vanished is noticed after about a minute.
inline void configure_socket(int fd) noexcept {
  auto const set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

inline bool is_would_block(int number) noexcept {
  return number == EAGAIN || number == EWOULDBLOCK || number == EINTR;
}

/// Whether the other side has closed.
inline bool has_ended(int fd) noexcept {
  pollfd state{fd, POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0;
}

/// Whether bytes are on their way that the other side's kernel has not got yet.
inline bool has_unacknowledged(int fd) noexcept {
  int bytes = 0;
  return ::ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

DISTGRAD_DECL TcpPeer::TcpPeer(TcpShared& shared, WorkerId id)
    : shared_(shared), id_(id), assembler_(shared.setup.limits, *this) {}

DISTGRAD_DECL void TcpPeer::send(OutgoingFrame frame) {
  error_code result;
  bool is_queued = false, arm = false;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::ended) {
      result = why_;
    } else {
      if (state_ == State::open && queue_.empty()) write_directly(frame);
      is_queued = !frame.is_finished();
      if (is_queued) queue_.push_back(std::move(frame));
      arm = must_arm();
    }
  }
  if (arm) arm_write();
  if (!is_queued) frame.complete(result);
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

/// @return bytes written, or nothing when the kernel takes none now. A broken connection is left
/// to the reader, which may still find a goodbye in what has arrived.
DISTGRAD_DECL std::ptrdiff_t TcpPeer::write(std::span<iovec> pieces) {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  for (;;) {
    auto const written = ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written >= 0) return written;
    if (errno == EINTR) continue;
    if (!is_would_block(errno)) ::shutdown(descriptor_, SHUT_RDWR);
    return 0;
  }
}

DISTGRAD_DECL bool TcpPeer::must_arm() {
  return state_ == State::open && !queue_.empty() && !std::exchange(write_armed_, true);
}

DISTGRAD_DECL void TcpPeer::arm_write() {
  shared_.dispatch([self = shared_from_this()] {
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
  for (auto& frame : finished) frame.complete({});
}

DISTGRAD_DECL void TcpPeer::attach(Socket socket) {
  Frames finished;
  bool arm = false;
  {
    std::lock_guard lock(mutex_);
    error_code ignored;
    if (state_ != State::connecting || shared_.closing) {
      socket.close(ignored);
      return;
    }
    socket.non_blocking(true, ignored);
    socket_.emplace(std::move(socket));
    descriptor_ = socket_->native_handle();
    configure_socket(descriptor_);
    state_ = State::open;
    write_queue(finished);
    arm = must_arm();
  }
  if (arm) arm_write();
  for (auto& frame : finished) frame.complete({});
  read();
}

DISTGRAD_DECL bool TcpPeer::is_connecting() {
  std::lock_guard lock(mutex_);
  return state_ == State::connecting;
}

DISTGRAD_DECL void TcpPeer::add_handle(std::vector<pollfd>& handles) {
  std::lock_guard lock(mutex_);
  if (state_ != State::open) return;
  auto const events = write_armed_ ? POLLIN | POLLOUT : POLLIN;
  handles.push_back({descriptor_, static_cast<short>(events), 0});
}

DISTGRAD_DECL void TcpPeer::read() {
  if (!socket_->is_open()) return;
  std::array<iovec, 2> pieces;
  assembler_.prepare(pieces);
  asked_bytes_ = pieces[0].iov_len;
  socket_->async_read_some(
      boost::asio::buffer(pieces[0].iov_base, asked_bytes_),
      [self = shared_from_this()](error_code ec, std::size_t count) { self->on_read(ec, count); });
}

DISTGRAD_DECL void TcpPeer::on_read(error_code ec, std::size_t count) {
  if (shared_.closing || !socket_->is_open()) return;
  if (ec) return lose(errc::peer_lost);
  bool more = take(count) && count == asked_bytes_;
  for (int turn = 0; more && turn < reads_per_turn; ++turn) more = read_more();
  go_on();
}

/// Reads on; or, after a pause, first takes what is in the input, as an event of its own.
DISTGRAD_DECL void TcpPeer::go_on() {
  if (shared_.closing) return;
  if (!assembler_.is_paused()) return read();
  shared_.post([self = shared_from_this()] {
    if (self->shared_.closing || !self->socket_->is_open()) return;
    self->take(0);
    self->go_on();
  });
}

/// @return whether to go on.
DISTGRAD_DECL bool TcpPeer::take(std::size_t count) {
  error_code failure;
  try {
    failure = assembler_.commit(count);
  } catch (std::exception const&) {  // no memory for what the peer announced
    failure = errc::frame_too_large;
  }
  if (!failure) failure = failure_;
  if (failure) lose(failure);
  return !assembler_.is_stopped() && !assembler_.is_paused() && !failure;
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

DISTGRAD_DECL std::vector<Buffer> TcpPeer::landing(
    FrameHeader const& header, std::span<std::byte const> metadata,
    std::span<std::uint64_t const> lengths) noexcept {
  if (shared_.closing) return {};
  return shared_.setup.sink->landing(header, metadata, lengths);
}

DISTGRAD_DECL bool TcpPeer::on_frame(Message message) noexcept {
  if (shared_.closing) return false;
  if (message.kind == FrameKind::goodbye) {
    lose(errc::closed);
    return false;
  }
  if (static_cast<std::uint16_t>(message.kind) < first_user_kind) {
    failure_ = errc::bad_message;
    return false;
  }
  --shared_.messages_left;
  shared_.setup.sink->on_message(id_, std::move(message));
  return !shared_.closing;
}

DISTGRAD_DECL void TcpPeer::lose(error_code why) {
  std::deque<OutgoingFrame> rest;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::ended) return;
    state_ = State::ended;
    why_ = why;
    rest.swap(queue_);
    error_code ignored;
    if (socket_) socket_->close(ignored);
    descriptor_ = -1;
  }
  for (auto& frame : rest) frame.complete(why);
  if (!shared_.closing) shared_.setup.sink->on_peer_lost(id_, why);
}

DISTGRAD_DECL void TcpPeer::say_goodbye() {
  std::lock_guard lock(mutex_);
  if (state_ != State::open) return;
  Message bye;
  bye.kind = FrameKind::goodbye;
  queue_.emplace_back(std::move(bye), nullptr);
}

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
  for (auto& frame : finished) frame.complete({});
  return has_arrived;
}

DISTGRAD_DECL void TcpPeer::stop_writing() {
  std::deque<OutgoingFrame> rest;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::ended) return;
    state_ = State::ended;
    why_ = errc::closed;
    rest.swap(queue_);
    if (descriptor_ >= 0) ::shutdown(descriptor_, SHUT_WR);
    descriptor_ = -1;
  }
  for (auto& frame : rest) frame.complete(errc::closed);
}

DISTGRAD_DECL void TcpPeer::close_socket() {
  error_code ignored;
  if (socket_) socket_->close(ignored);
}

}  // namespace distgrad::detail
