#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include <distgrad/transport/detail/handshake.hpp>
#include <distgrad/transport/detail/serial_link.hpp>

namespace distgrad::detail {

inline constexpr milliseconds first_hello_pause{10};
inline constexpr milliseconds longest_hello_pause{500};

DISTGRAD_DECL SerialLink::SerialLink(SerialLinkOptions const& options, Ends ends, time_point now)
    : options_(options),
      ends_(std::move(ends)),
      connect_until_(now + options.connect_timeout),
      hello_at_(now),
      hello_pause_(first_hello_pause),
      sender_(options.window_pieces) {}

DISTGRAD_DECL void SerialLink::receive(std::span<std::byte const> bytes, time_point now,
                                       std::vector<std::byte>& stream) {
  decoder_.feed(bytes, [&](std::span<std::byte const> packet) {
    ++statistics_.packets_received;
    on_packet(packet, now, stream);
  });
}

DISTGRAD_DECL void SerialLink::on_packet(std::span<std::byte const> bytes, time_point now,
                                         std::vector<std::byte>& stream) {
  if (auto const hello = read_hello(bytes)) return on_hello(*hello);
  auto const packet = read_packet(bytes);
  bool const ours = packet && packet->to_session == ends_.session &&
                    packet->from_session == peer_session_ && peer_session_ != 0;
  if (!ours) {
    ++statistics_.packets_dropped;
    return;
  }
  if (state_ == State::connecting) state_ = State::open;  // who sends so has seen our hello
  if (state_ == State::open) {
    for (auto n = sender_.acknowledged(packet->expected, now); n > 0; --n) {
      arrived_.push_back(std::move(in_flight_.front()));
      in_flight_.pop_front();
    }
    if (packet->kind == SerialPacketKind::gap) sender_.gap_reported(packet->expected);
  }
  if (packet->kind != SerialPacketKind::data) return;
  if (!receiver_.accept(packet->number)) {
    ++statistics_.packets_dropped;
  } else if (state_ == State::open) {
    stream.insert(stream.end(), packet->piece.begin(), packet->piece.end());
  }
}

DISTGRAD_DECL error_code SerialLink::judge(SerialHello const& hello) const {
  if (hello.version != protocol_version) return errc::version_mismatch;
  if (!is_same_secret(ends_.secret, hello.secret)) return errc::bad_secret;
  if (hello.to != ends_.self.id || hello.from != ends_.peer.id) return errc::unknown_worker;
  bool const expected = is_expected(ends_.peer.incarnation, hello.incarnation);
  return expected ? error_code() : make_error_code(errc::refused);
}

DISTGRAD_DECL void SerialLink::decline(SerialHello const& hello, error_code why) {
  decline_ = why.value();
  decline_to_ = hello.session;
  hello_due_ = true;
}

/// A peer whose hello came too late still learns how things stand; any other life is refused.
DISTGRAD_DECL void SerialLink::answer_ended(SerialHello const& hello) {
  if (auto const bad = judge(hello)) return decline(hello, bad);
  if (hello.session != peer_session_) return decline(hello, errc::refused);
  hello_due_ = true;
}

DISTGRAD_DECL void SerialLink::on_hello(SerialHello const& hello) {
  if (state_ == State::ended) {
    if (hello.wants_answer && decline_ == 0) answer_ended(hello);
    return;
  }
  if (hello.status != 0) {
    if (hello.peer_session != ends_.session) return;  // was meant for another life
    return end(is_known_errc(hello.status) ? static_cast<errc>(hello.status) : errc::refused);
  }
  if (auto const bad = judge(hello)) {
    decline(hello, bad);
    if (bad == errc::version_mismatch) end(bad);  // it cannot read more than this
    return;
  }
  if (state_ == State::open && hello.session != peer_session_) {
    decline(hello, errc::refused);
    return end(errc::peer_lost);
  }
  peer_session_ = hello.session;
  hello_due_ = hello_due_ || hello.wants_answer;
  if (hello.peer_session == ends_.session) state_ = State::open;
}

DISTGRAD_DECL void SerialLink::end(error_code why) {
  if (state_ == State::ended) return;
  state_ = State::ended;
  why_ = why;
}

DISTGRAD_DECL void SerialLink::tick(time_point now) {
  if (state_ == State::connecting) {
    if (now >= connect_until_) return end(errc::unreachable);
    if (now >= hello_at_) hello_due_ = true;
  } else if (state_ == State::open) {
    sender_.tick(now);
    if (now - sender_.waits_since(now) >= options_.give_up_after) end(errc::peer_lost);
  }
}

DISTGRAD_DECL std::optional<time_point> SerialLink::next_deadline() const {
  switch (state_) {
    case State::connecting:
      return hello_due_ ? connect_until_ : std::min(hello_at_, connect_until_);
    case State::open: return sender_.next_deadline();
    case State::ended: break;
  }
  return std::nullopt;
}

DISTGRAD_DECL std::vector<OutgoingFrame> SerialLink::take_unfinished() {
  std::vector<OutgoingFrame> all(std::make_move_iterator(in_flight_.begin()),
                                 std::make_move_iterator(in_flight_.end()));
  std::move(queue_.begin(), queue_.end(), std::back_inserter(all));
  in_flight_.clear();
  queue_.clear();
  return all;
}

DISTGRAD_DECL std::span<std::byte const> SerialLink::next_line(time_point now) {
  line_.clear();
  if (std::exchange(hello_due_, false)) {
    say_hello(now);
  } else if (receiver_.answer() == GoBackNReceiver::Answer::gap) {
    say(SerialPacketKind::gap);
  } else if (state_ == State::open) {
    cut_pieces();
    if (sender_.has_next()) say_piece(sender_.next(now));
  }
  if (line_.empty() && receiver_.answer() != GoBackNReceiver::Answer::none) {
    say(SerialPacketKind::ack);
  }
  if (!line_.empty()) ++statistics_.packets_sent;
  return line_;
}

DISTGRAD_DECL void SerialLink::cut_pieces() {
  while (!queue_.empty() && sender_.has_room()) {
    std::vector<std::byte> piece;
    piece.reserve(options_.piece_bytes);
    std::size_t ended = 0;
    while (!queue_.empty() && piece.size() < options_.piece_bytes) {
      auto& frame = queue_.front();
      iovec part{};
      frame.gather({&part, 1});
      auto const size = std::min(part.iov_len, options_.piece_bytes - piece.size());
      auto const* from = static_cast<std::byte const*>(part.iov_base);
      piece.insert(piece.end(), from, from + size);
      frame.advance(size);
      if (!frame.is_finished()) continue;
      in_flight_.push_back(std::move(frame));
      queue_.pop_front();
      ++ended;
    }
    sender_.add(std::move(piece), ended);
  }
}

DISTGRAD_DECL void SerialLink::say_hello(time_point now) {
  SerialHello hello;
  hello.session = ends_.session;
  hello.peer_session = decline_ != 0 ? decline_to_ : peer_session_;
  hello.status = std::exchange(decline_, 0);
  hello.wants_answer = state_ == State::connecting && hello.status == 0;
  hello.from = ends_.self.id;
  hello.to = ends_.peer.id;
  hello.incarnation = ends_.self.incarnation;
  hello.secret = ends_.secret;
  write_hello(hello, packet_);
  write_line(packet_, line_);
  hello_at_ = now + hello_pause_;
  hello_pause_ = std::min<Clock::duration>(hello_pause_ * 2, longest_hello_pause);
}

DISTGRAD_DECL void SerialLink::say(SerialPacketKind kind) {
  write_packet({kind, ends_.session, peer_session_, receiver_.expected()}, packet_);
  write_line(packet_, line_);
  receiver_.answered();
}

DISTGRAD_DECL void SerialLink::say_piece(GoBackNSender::Piece const& piece) {
  if (piece.times_sent > 1) ++statistics_.packets_resent;
  write_packet({SerialPacketKind::data, ends_.session, peer_session_, receiver_.expected(),
                piece.number, piece.bytes},
               packet_);
  write_line(packet_, line_);
  receiver_.answered();
}

DISTGRAD_DECL SerialStatistics SerialLink::statistics() const {
  auto all = statistics_;
  all.packets_damaged = decoder_.damaged();
  return all;
}

}  // namespace distgrad::detail
