#pragma once
#include <poll.h>

#include <algorithm>
#include <random>
#include <utility>

#include <distgrad/transport/detail/outgoing_check.hpp>
#include <distgrad/transport/detail/setup_check.hpp>
#include <distgrad/transport/detail/terminal.hpp>
#include <distgrad/transport/serial_transport.hpp>

namespace distgrad {
namespace detail {

/// How long a close waits for the acknowledgement of what was sent before, and for how long while
/// no peer says anything.
inline constexpr milliseconds line_flush_timeout{1000}, line_flush_silence{250};

inline std::shared_ptr<SerialPeer> open_line(IoLoop& loop, SerialTransport::Line const& line) {
  error_code ec;
  auto input = line.descriptor;
  if (line.device.empty()) {
    ec = make_raw(input, 0);
  } else {
    input = open_terminal(line.device, line.baud_rate, ec);
  }
  if (ec) {
    throw_error(errc::unreachable, "the line to rank " + to_string(line.peer) + " at '" +
                                       line.device + "' cannot be opened: " + ec.message());
  }
  return std::make_shared<SerialPeer>(loop, line.peer, input,
                                      line.output < 0 ? input : line.output);
}

inline void check_line_options(SerialTransport::Options const& options) {
  bool const good = options.piece_bytes >= 16 && options.piece_bytes <= max_piece_bytes &&
                    options.window_pieces >= 1 && options.window_pieces <= 1024;
  if (!good) {
    throw_error(errc::invalid_argument,
                "a serial line's piece_bytes are 16 to 4096, its window_pieces 1 to 1024");
  }
}

inline void check_lines(TransportSetup const& setup,
                        std::vector<SerialTransport::Line> const& lines) {
  for (auto const& line : lines) {
    if (line.peer.value < setup.group.size() && line.peer != setup.self) continue;
    throw_error(errc::invalid_argument,
                "a line leads to rank " + to_string(line.peer) + ", which is no other worker");
  }
}

}  // namespace detail

DISTGRAD_DECL SerialTransport::SerialTransport(Options options)
    : options_(std::move(options)), loop_([this] { release_descriptors(); }), to_self_(loop_) {
  detail::check_line_options(options_);
  for (auto const& line : options_.lines) {
    if (line.peer.value >= peers_.size()) peers_.resize(line.peer.value + 1);
    peers_[line.peer.value] = detail::open_line(loop_, line);
  }
}

DISTGRAD_DECL SerialTransport::~SerialTransport() { close(); }

DISTGRAD_DECL void SerialTransport::start(TransportSetup setup) {
  detail::check_setup(setup);
  detail::check_lines(setup, options_.lines);
  loop_.setup = std::move(setup);
  auto const& group = loop_.setup.group;
  auto const& self = group[loop_.setup.self.value].info;
  peers_.resize(group.size());
  detail::SerialLinkOptions const options{options_.piece_bytes, options_.window_pieces,
                                          options_.give_up_after, loop_.setup.connect_timeout};
  std::random_device random;
  for (std::uint32_t rank = 0; rank < peers_.size(); ++rank) {
    if (!peers_[rank]) continue;
    auto const session = random() | 1u;  // 0 stands for an unknown one
    peers_[rank]->start(options, {self, group[rank].info, loop_.setup.job_secret, session});
  }
  auto const lines =
      peers_.size() - static_cast<std::size_t>(std::count(peers_.begin(), peers_.end(), nullptr));
  if (lines + 1 < group.size()) loop_.post([this] { report_unreachable(); });
  started_ = true;
}

DISTGRAD_DECL void SerialTransport::report_unreachable() {
  for (std::uint32_t rank = 0; rank < peers_.size() && !loop_.closing; ++rank) {
    if (peers_[rank] || rank == loop_.setup.self.value) continue;
    loop_.setup.sink->on_peer_lost({rank}, errc::unreachable);
  }
}

DISTGRAD_DECL void SerialTransport::async_send(WorkerId to, Message message, SendCompletion done) {
  error_code failed;
  bool const to_self = to == loop_.setup.self;
  if (!started_ || loop_.closing) {
    failed = errc::closed;
  } else if (to.value >= peers_.size()) {
    failed = errc::unknown_worker;
  } else if (!to_self && !peers_[to.value]) {
    failed = errc::unreachable;
  } else {
    failed = detail::check_outgoing(message.header(), loop_.setup.limits);
  }
  if (failed) {
    if (done) done(failed);
  } else if (to_self) {
    to_self_.send(std::move(message), std::move(done));
  } else {
    peers_[to.value]->send(detail::OutgoingFrame(std::move(message), std::move(done)));
  }
}

DISTGRAD_DECL std::vector<pollfd> SerialTransport::native_handles() {
  std::vector<pollfd> handles{{loop_.bell.descriptor(), POLLIN, 0}};
  for (auto const& peer : peers_) {
    if (peer) peer->add_handles(handles);
  }
  return handles;
}

DISTGRAD_DECL std::chrono::nanoseconds SerialTransport::longest_sleep() {
  auto next = time_point::max();
  for (auto const& peer : peers_) {
    if (peer) next = std::min(next, peer->next_deadline());
  }
  if (next == time_point::max()) return std::chrono::nanoseconds::max();
  return std::max<std::chrono::nanoseconds>(next - Clock::now(), std::chrono::nanoseconds(0));
}

DISTGRAD_DECL void SerialTransport::close() noexcept { end(true); }
DISTGRAD_DECL void SerialTransport::abandon() noexcept { end(false); }

DISTGRAD_DECL void SerialTransport::end(bool with_goodbye) noexcept {
  if (loop_.closing.exchange(true)) return;
  if (with_goodbye) flush_all();
  for (auto const& peer : peers_) {
    if (peer) peer->stop();
  }
  to_self_.close();
  loop_.end();
}

DISTGRAD_DECL void SerialTransport::flush_all() noexcept {
  std::vector<pollfd> inputs;
  for (auto const& peer : peers_) {
    if (!peer) continue;
    peer->say_goodbye();
    inputs.push_back({peer->input(), POLLIN, 0});
  }
  auto const deadline = Deadline::after(detail::line_flush_timeout);
  auto silence = Deadline::after(detail::line_flush_silence);
  for (std::uint64_t heard = 0;;) {
    bool is_over = true;
    std::uint64_t packets = 0;
    for (auto const& peer : peers_) {
      if (!peer) continue;
      is_over = peer->flush() && is_over;
      packets += peer->statistics().packets_received;
    }
    if (is_over || deadline.has_passed() || silence.has_passed()) return;
    if (std::exchange(heard, packets) != packets) {
      silence = Deadline::after(detail::line_flush_silence);
    }
    ::poll(inputs.data(), inputs.size(), 1);
  }
}

DISTGRAD_DECL void SerialTransport::release_descriptors() noexcept {
  for (auto const& peer : peers_) {
    if (peer) peer->close_descriptors();
  }
}

DISTGRAD_DECL SerialStatistics SerialTransport::statistics(WorkerId peer) const {
  bool const has_line = peer.value < peers_.size() && peers_[peer.value];
  return has_line ? peers_[peer.value]->statistics() : SerialStatistics();
}

}  // namespace distgrad
