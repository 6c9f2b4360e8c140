#pragma once
#include <sys/socket.h>

#include <exception>
#include <utility>

#include <distgrad/transport/detail/outgoing_check.hpp>
#include <distgrad/transport/detail/peer.hpp>

namespace distgrad::detail {

DISTGRAD_DECL Peer::Peer(IoLoop& loop, WorkerId id)
    : loop_(loop), assembler_(loop.setup.limits, *this), id_(id) {}

DISTGRAD_DECL void Peer::send(OutgoingFrame frame) {
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

DISTGRAD_DECL bool Peer::must_arm() {
  return state_ == State::open && !queue_.empty() && !std::exchange(write_armed_, true);
}

DISTGRAD_DECL void Peer::complete(Frames& finished) {
  for (auto& frame : finished) frame.complete({});
}

DISTGRAD_DECL bool Peer::is_connecting() {
  std::lock_guard lock(mutex_);
  return state_ == State::connecting;
}

DISTGRAD_DECL void Peer::add_handle(std::vector<pollfd>& handles) {
  std::lock_guard lock(mutex_);
  if (state_ != State::open) return;
  auto const events = write_armed_ ? POLLIN | POLLOUT : POLLIN;
  handles.push_back({descriptor_, static_cast<short>(events), 0});
}

DISTGRAD_DECL bool Peer::take(std::size_t count) {
  error_code failure;
  DISTGRAD_TRY { failure = assembler_.commit(count); }
  DISTGRAD_CATCH(std::exception const&) {  // no memory for what the peer announced
    failure = errc::frame_too_large;
  }
  if (!failure) failure = failure_;
  if (failure) lose(failure);
  return !assembler_.is_stopped() && !assembler_.is_paused() && !failure;
}

DISTGRAD_DECL std::vector<Buffer> Peer::landing(FrameHeader const& header,
                                                std::span<std::byte const> metadata,
                                                std::span<std::uint64_t const> lengths) noexcept {
  if (loop_.closing) return {};
  return loop_.setup.sink->landing(header, metadata, lengths);
}

DISTGRAD_DECL bool Peer::on_frame(Message message) noexcept {
  if (loop_.closing) return false;
  if (message.kind == FrameKind::goodbye) {
    lose(errc::closed);
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

DISTGRAD_DECL std::deque<OutgoingFrame> Peer::end(error_code why) {
  state_ = State::ended;
  why_ = why;
  descriptor_ = -1;
  return std::exchange(queue_, {});
}

DISTGRAD_DECL void Peer::lose(error_code why) {
  std::deque<OutgoingFrame> rest;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::ended) return;
    disconnect(why);
    rest = end(why);
  }
  for (auto& frame : rest) frame.complete(why);
  retire(std::move(rest));
  if (!loop_.closing) loop_.setup.sink->on_peer_lost(id_, why);
}

DISTGRAD_DECL void Peer::say_goodbye() {
  std::lock_guard lock(mutex_);
  if (state_ == State::ended) return;
  Message bye;
  bye.kind = FrameKind::goodbye;
  queue_.emplace_back(std::move(bye), nullptr);
}

DISTGRAD_DECL void Peer::stop_writing() {
  std::deque<OutgoingFrame> rest;
  {
    std::lock_guard lock(mutex_);
    if (state_ == State::ended) return;
    if (descriptor_ >= 0) ::shutdown(descriptor_, SHUT_WR);
    rest = end(errc::closed);
  }
  for (auto& frame : rest) frame.complete(errc::closed);
  retire(std::move(rest));
}

}  // namespace distgrad::detail
