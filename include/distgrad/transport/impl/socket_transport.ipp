#pragma once
#include <poll.h>

#include <algorithm>
#include <utility>

#include <distgrad/transport/detail/outgoing_check.hpp>
#include <distgrad/transport/detail/setup_check.hpp>
#include <distgrad/transport/detail/socket_transport.hpp>

namespace distgrad::detail {

/// How long a close waits for peers that have not connected yet.
inline constexpr milliseconds late_goodbye_timeout{5000};
/// How long it then still waits for the peers' kernels to take what was sent before.
inline constexpr milliseconds flush_timeout{1000};
inline constexpr milliseconds sleep_while_connecting{10};

DISTGRAD_DECL SocketTransport::SocketTransport(std::unique_ptr<ConnectionFactory> connections,
                                               std::string const& bind_address, std::uint16_t port)
    : connections_(std::move(connections)),
      loop_([this] { release_sockets(); }),
      listener_(loop_, *connections_, bind_address, port),
      to_self_(loop_),
      late_(loop_.io) {}

DISTGRAD_DECL SocketTransport::~SocketTransport() { close(); }

DISTGRAD_DECL HostPort SocketTransport::reachable_at(std::string const& asked) {
  auto const local = listener_.local_endpoint();
  auto host = asked;
  if (host.empty() && !local.address().is_unspecified()) host = local.address().to_string();
  if (host.empty()) host = outgoing_address(loop_.io);
  return {host, local.port()};
}

DISTGRAD_DECL void SocketTransport::start(TransportSetup setup) {
  check_setup(setup);
  loop_.setup = std::move(setup);
  auto const self = loop_.setup.self;
  peers_.resize(loop_.setup.group.size());
  for (std::uint32_t rank = 0; rank < peers_.size(); ++rank) {
    if (rank == self.value) continue;
    peers_[rank] = connections_->make_peer(loop_, WorkerId{rank});
  }
  listener_.start(
      [this](WorkerId from, HandshakeChannel& channel) { peers_[from.value]->attach(channel); });
  for (std::uint32_t rank = 0; rank < self.value; ++rank) connect({rank});
  watch_for_late_peers();
  started_ = true;
}

DISTGRAD_DECL void SocketTransport::connect(WorkerId to) {
  auto const peer = peers_[to.value];
  connectors_.push_back(std::make_shared<TcpConnector>(loop_, *connections_, to));
  connectors_.back()->start([peer](HandshakeChannel& channel) { peer->attach(channel); },
                            [peer](error_code why) { peer->lose(why); });
}

/// Connectors bound their own time; this bounds the time for peers that should have connected.
DISTGRAD_DECL void SocketTransport::watch_for_late_peers() {
  late_.expires_after(loop_.setup.connect_timeout);
  late_.async_wait([this](error_code ec) {
    if (ec || loop_.closing) return;
    for (auto rank = loop_.setup.self.value + 1; rank < peers_.size(); ++rank) {
      if (peers_[rank]->is_connecting()) peers_[rank]->lose(errc::unreachable);
    }
  });
}

DISTGRAD_DECL void SocketTransport::async_send(WorkerId to, Message message, SendCompletion done) {
  error_code failed;
  if (!started_ || loop_.closing) {
    failed = errc::closed;
  } else if (to.value >= peers_.size()) {
    failed = errc::unknown_worker;
  } else {
    failed = check_outgoing(message.header(), loop_.setup.limits);
  }
  if (failed) {
    if (done) done(failed);
  } else if (to == loop_.setup.self) {
    to_self_.send(std::move(message), std::move(done));
  } else {
    peers_[to.value]->send(OutgoingFrame(std::move(message), std::move(done)));
  }
}

DISTGRAD_DECL std::vector<pollfd> SocketTransport::native_handles() {
  std::vector<pollfd> handles{{loop_.bell.descriptor(), POLLIN, 0}};
  if (auto const fd = listener_.native_handle(); fd >= 0) handles.push_back({fd, POLLIN, 0});
  for (auto const& peer : peers_) {
    if (peer) peer->add_handle(handles);
  }
  return handles;
}

DISTGRAD_DECL std::chrono::nanoseconds SocketTransport::longest_sleep() {
  return listener_.is_busy() || is_connecting() ? sleep_while_connecting
                                                : connections_->longest_sleep();
}

DISTGRAD_DECL bool SocketTransport::is_connecting() const {
  return std::ranges::any_of(peers_,
                             [](auto const& peer) { return peer && peer->is_connecting(); });
}

DISTGRAD_DECL void SocketTransport::close() noexcept { end(true); }
DISTGRAD_DECL void SocketTransport::abandon() noexcept { end(false); }

DISTGRAD_DECL void SocketTransport::end(bool with_goodbye) noexcept {
  if (loop_.closing.exchange(true)) return;
  if (with_goodbye) say_goodbye();
  for (auto const& peer : peers_) {
    if (peer) peer->stop_writing();
  }
  to_self_.close();
  loop_.end();
}

/// Lets the loop's work go on until `done` says true, or for so long.
template <class Condition>
void turn_until(IoLoop& loop, milliseconds timeout, Condition done) {
  auto const deadline = Deadline::after(timeout);
  while (!done() && !deadline.has_passed()) {
    loop.turn_once();
    ::poll(nullptr, 0, 1);
  }
}

/// Also to those that have not connected yet: a peer whom nobody tells would wait for this worker
/// until its `connect_timeout`.
DISTGRAD_DECL void SocketTransport::say_goodbye() noexcept {
  for (auto const& peer : peers_) {
    if (peer) peer->say_goodbye();
  }
  // Until the peers' kernels have it all: a close with unread input would cut it off.
  auto const flush_all = [this] {
    bool all = true;
    for (auto const& peer : peers_) all = (!peer || peer->flush()) && all;
    return all;
  };
  turn_until(loop_, std::min(late_goodbye_timeout, loop_.setup.connect_timeout), [&] {
    flush_all();  // those who are connected do not wait for the others
    return !is_connecting();
  });
  turn_until(loop_, flush_timeout, flush_all);
}

DISTGRAD_DECL void SocketTransport::release_sockets() noexcept {
  listener_.close();
  late_.cancel();
  for (auto const& connector : connectors_) connector->close();
  for (auto const& peer : peers_) {
    if (peer) peer->close_socket();
  }
}

}  // namespace distgrad::detail
