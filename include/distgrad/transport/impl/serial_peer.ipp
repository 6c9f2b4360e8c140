#pragma once
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include <distgrad/transport/detail/outgoing_check.hpp>
#include <distgrad/transport/detail/serial_peer.hpp>

namespace distgrad::detail {

/// After so many reads the I/O thread delivers, acknowledges, and turns to its other lines.
inline constexpr int line_reads_per_turn = 16;

/// A pipe's or line's write that does not raise SIGPIPE where the kernel lets us say so.
inline std::ptrdiff_t write_to_line(int descriptor, std::span<std::byte const> bytes) noexcept {
  auto const sent = ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0 || errno != ENOTSOCK) return sent;
  return ::write(descriptor, bytes.data(), bytes.size());
}

DISTGRAD_DECL SerialPeer::SerialPeer(IoLoop& loop, WorkerId id, int input, int output)
    : loop_(loop),
      id_(id),
      input_(input),
      output_(output == input ? ::fcntl(input, F_DUPFD_CLOEXEC, 0) : output),
      reader_(loop.io),
      writer_(loop.io),
      timer_(loop.io) {
  for (int const descriptor : {input_, output_}) {
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  }
  error_code ec;
  reader_.assign(input_, ec);
  if (!ec) writer_.assign(output_, ec);
  if (ec)
    throw_error(errc::invalid_argument,
                "the line to rank " + to_string(id) + " cannot be waited for: " + ec.message());
}

DISTGRAD_DECL SerialPeer::~SerialPeer() { close_descriptors(); }

DISTGRAD_DECL void SerialPeer::start(SerialLinkOptions const& options, SerialLink::Ends ends) {
  link_.emplace(options, std::move(ends), Clock::now());
  assembler_.emplace(loop_.setup.limits, static_cast<AssemblerSink&>(*this));
  await_input();
  loop_.post([self = shared_from_this()] { self->pump(); });
}

DISTGRAD_DECL void SerialPeer::send(OutgoingFrame frame) {
  error_code failed;
  bool must_post = false;
  {
    std::lock_guard lock(mutex_);
    if (is_stopped_) {
      failed = errc::closed;
    } else if (link_->state() == SerialLink::State::ended) {
      failed = link_->why();
    } else {
      link_->push(std::move(frame));
      must_post = !std::exchange(is_pump_posted_, true);
    }
  }
  if (failed) frame.complete(failed);
  if (must_post) loop_.post([self = shared_from_this()] { self->pump(); });
}

DISTGRAD_DECL void SerialPeer::add_handles(std::vector<pollfd>& handles) const {
  if (!reader_.is_open() || has_line_ended_) return;
  std::lock_guard lock(mutex_);
  handles.push_back({input_, POLLIN, 0});
  if (is_output_blocked_) handles.push_back({output_, POLLOUT, 0});
}

DISTGRAD_DECL SerialStatistics SerialPeer::statistics() const {
  std::lock_guard lock(mutex_);
  return link_ ? link_->statistics() : SerialStatistics();
}

/// Takes what the line has now. @return false at its end.
DISTGRAD_DECL bool SerialPeer::read_line(std::vector<std::byte>& stream) {
  std::array<std::byte, 4096> bytes;
  for (int turn = 0; turn < line_reads_per_turn; ++turn) {
    auto const got = ::read(input_, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    link_->receive(std::span(bytes).first(static_cast<std::size_t>(got)), Clock::now(), stream);
  }
  return true;
}

/// Writes what the link has to say, as far as the line takes it now. A broken line is left to the
/// reader, which may still find a goodbye in what has arrived.
DISTGRAD_DECL void SerialPeer::write_line() {
  is_output_blocked_ = false;
  for (;;) {
    if (written_ == unwritten_.size()) {
      auto const line = link_->next_line(Clock::now());
      unwritten_.assign(line.begin(), line.end());
      written_ = 0;
      if (unwritten_.empty()) return;
    }
    auto const written = write_to_line(output_, std::span(unwritten_).subspan(written_));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      is_output_blocked_ = errno == EAGAIN || errno == EWOULDBLOCK;
      if (!is_output_blocked_) written_ = unwritten_.size();
      return;
    }
    written_ += static_cast<std::size_t>(written);
  }
}

DISTGRAD_DECL void SerialPeer::await_input() {
  reader_.async_wait(Descriptor::wait_read, [self = shared_from_this()](error_code ec) {
    if (!ec) self->on_input();
  });
}

DISTGRAD_DECL void SerialPeer::on_input() {
  {
    std::lock_guard lock(mutex_);
    if (loop_.closing) return;
    has_line_ended_ = !read_line(stream_);
  }
  deliver();
  if (!has_line_ended_) pump();
  go_on();
}

/// The line is read on once all that came from it was delivered.
DISTGRAD_DECL void SerialPeer::go_on() {
  if (loop_.closing) return;
  if (assembler_->is_paused()) {
    return loop_.post([self = shared_from_this()] {
      if (!self->loop_.closing) self->deliver();
      self->go_on();
    });
  }
  settle(has_line_ended_ ? make_error_code(errc::peer_lost) : failure_);
  if (!has_line_ended_) await_input();
}

DISTGRAD_DECL void SerialPeer::deliver() {
  std::array<iovec, 2> places;
  if (assembler_->is_paused()) commit(0);
  while (delivered_ < stream_.size() && !assembler_->is_paused() && !failure_) {
    assembler_->prepare(places);
    auto const size = std::min(stream_.size() - delivered_, places[0].iov_len);
    std::memcpy(places[0].iov_base, stream_.data() + delivered_, size);
    delivered_ += size;
    commit(size);
    if (assembler_->is_stopped()) delivered_ = stream_.size();
  }
  if (delivered_ < stream_.size() && !failure_) return;
  stream_.clear();
  delivered_ = 0;
}

DISTGRAD_DECL void SerialPeer::commit(std::size_t size) {
  DISTGRAD_TRY {
    if (auto const bad = assembler_->commit(size)) failure_ = bad;
  }
  DISTGRAD_CATCH(std::exception const&) {  // no memory for what the peer announced
    failure_ = errc::frame_too_large;
  }
}

/// Completes what has arrived; at the end of the link, or at its `lost`, everything else.
DISTGRAD_DECL void SerialPeer::settle(error_code lost) {
  Frames arrived, unfinished;
  error_code why;
  {
    std::lock_guard lock(mutex_);
    if (lost) link_->end(lost);
    arrived = link_->take_arrived();
    // A loss is reported after all that came before it.
    if (link_->state() == SerialLink::State::ended && !is_stopped_ && !assembler_->is_paused()) {
      why = link_->why();
      unfinished = link_->take_unfinished();
    }
  }
  for (auto& frame : arrived) frame.complete({});
  for (auto& frame : unfinished) frame.complete(why);
  if (!why || loop_.closing || std::exchange(is_loss_reported_, true)) return;
  loop_.setup.sink->on_peer_lost(id_, why);
}

DISTGRAD_DECL void SerialPeer::pump() {
  bool is_blocked = false;
  {
    std::lock_guard lock(mutex_);
    is_pump_posted_ = false;
    if (loop_.closing) return;
    link_->tick(Clock::now());
    bool const was_blocked = is_output_blocked_;
    if (!was_blocked) write_line();
    is_blocked = is_output_blocked_ && !was_blocked;
  }
  settle();
  if (loop_.closing) return;
  if (is_blocked) await_output();
  await_deadline();
}

DISTGRAD_DECL void SerialPeer::await_output() {
  writer_.async_wait(Descriptor::wait_write, [self = shared_from_this()](error_code ec) {
    if (ec) return;
    {
      std::lock_guard lock(self->mutex_);
      self->is_output_blocked_ = false;
    }
    self->pump();
  });
}

DISTGRAD_DECL void SerialPeer::await_deadline() {
  auto const next = [&] {
    std::lock_guard lock(mutex_);
    return link_->next_deadline();
  }();
  // A timer that runs already and is not too late stays: most deadlines only move back.
  if (!next || *next >= timer_at_) return;
  timer_at_ = *next;
  timer_.expires_at(timer_at_);
  timer_.async_wait([self = shared_from_this()](error_code ec) {
    if (ec) return;
    self->timer_at_ = time_point::max();
    self->pump();
  });
}

DISTGRAD_DECL std::vector<Buffer> SerialPeer::landing(
    FrameHeader const& header, std::span<std::byte const> metadata,
    std::span<std::uint64_t const> lengths) noexcept {
  if (loop_.closing) return {};
  return loop_.setup.sink->landing(header, metadata, lengths);
}

DISTGRAD_DECL bool SerialPeer::on_frame(Message message) noexcept {
  if (loop_.closing) return false;
  if (message.kind == FrameKind::goodbye) {
    failure_ = errc::closed;
    return false;
  }
  if (static_cast<std::uint16_t>(message.kind) < first_user_kind) {
    failure_ = errc::bad_message;
    return false;
  }
  --loop_.messages_left;
  loop_.setup.sink->on_message(id_, std::move(message));
  return !loop_.closing;
}

DISTGRAD_DECL void SerialPeer::say_goodbye() {
  std::lock_guard lock(mutex_);
  if (!link_ || link_->state() == SerialLink::State::ended) return;
  Message bye;
  bye.kind = FrameKind::goodbye;
  link_->push(OutgoingFrame(std::move(bye), nullptr));
}

DISTGRAD_DECL bool SerialPeer::flush() {
  Frames arrived;
  bool is_over = true;
  {
    std::lock_guard lock(mutex_);
    if (link_) {
      std::vector<std::byte> ignored;
      bool const has_ended = !read_line(ignored);
      link_->tick(Clock::now());
      write_line();
      arrived = link_->take_arrived();
      bool const talks = link_->state() != SerialLink::State::ended && !link_->has_arrived();
      is_over = has_ended || (!talks && !is_output_blocked_);
    }
  }
  for (auto& frame : arrived) frame.complete({});
  return is_over;
}

DISTGRAD_DECL void SerialPeer::stop() {
  Frames rest;
  {
    std::lock_guard lock(mutex_);
    is_stopped_ = true;
    if (!link_) return;
    rest = link_->take_unfinished();
  }
  for (auto& frame : rest) frame.complete(errc::closed);
}

DISTGRAD_DECL void SerialPeer::close_descriptors() noexcept {
  error_code ignored;
  timer_.cancel();
  reader_.close(ignored);
  writer_.close(ignored);
}

}  // namespace distgrad::detail
