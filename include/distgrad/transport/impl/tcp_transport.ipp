#pragma once
#include <poll.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <distgrad/transport/detail/outgoing_check.hpp>
#include <distgrad/transport/detail/setup_check.hpp>
#include <distgrad/transport/tcp_transport.hpp>

namespace distgrad {
namespace detail {

/// How long a close waits for the kernel to take what was sent before.
inline constexpr milliseconds flush_timeout{1000};
inline constexpr milliseconds sleep_while_connecting{10};

inline std::string advertised(TcpShared& shared, TcpListener const& listener,
                              std::string const& asked) {
  auto const local = listener.local_endpoint();
  auto host = asked;
  if (host.empty() && !local.address().is_unspecified()) host = local.address().to_string();
  if (host.empty()) host = outgoing_address(shared.io);
  return to_string(HostPort{host, local.port()});
}

}  // namespace detail

DISTGRAD_DECL TcpTransport::TcpTransport(Options options)
    : work_(boost::asio::make_work_guard(shared_.io)),
      listener_(shared_, options.bind_address, options.port),
      endpoint_(detail::advertised(shared_, listener_, options.advertise_address)),
      to_self_(shared_),
      late_(shared_.io) {}

DISTGRAD_DECL TcpTransport::~TcpTransport() { close(); }

DISTGRAD_DECL void TcpTransport::start(TransportSetup setup) {
  detail::check_setup(setup);
  shared_.setup = std::move(setup);
  auto const self = shared_.setup.self;
  peers_.resize(shared_.setup.group.size());
  for (std::uint32_t rank = 0; rank < peers_.size(); ++rank) {
    if (rank == self.value) continue;
    peers_[rank] = std::make_shared<detail::TcpPeer>(shared_, WorkerId{rank});
  }
  listener_.start([this](WorkerId from, boost::asio::ip::tcp::socket socket) {
    peers_[from.value]->attach(std::move(socket));
  });
  for (std::uint32_t rank = 0; rank < self.value; ++rank) connect({rank});
  watch_for_late_peers();
  started_ = true;
}

DISTGRAD_DECL void TcpTransport::connect(WorkerId to) {
  auto const peer = peers_[to.value];
  connectors_.push_back(std::make_shared<detail::TcpConnector>(shared_, to));
  connectors_.back()->start(
      [peer](boost::asio::ip::tcp::socket socket) { peer->attach(std::move(socket)); },
      [peer](error_code why) { peer->lose(why); });
}

/// Connectors bound their own time; this bounds the time for peers that should have connected.
DISTGRAD_DECL void TcpTransport::watch_for_late_peers() {
  late_.expires_after(shared_.setup.connect_timeout);
  late_.async_wait([this](error_code ec) {
    if (ec || shared_.closing) return;
    for (auto rank = shared_.setup.self.value + 1; rank < peers_.size(); ++rank) {
      if (peers_[rank]->is_connecting()) peers_[rank]->lose(errc::unreachable);
    }
  });
}

DISTGRAD_DECL void TcpTransport::async_send(WorkerId to, Message message, SendCompletion done) {
  error_code failed;
  if (!started_ || shared_.closing) {
    failed = errc::closed;
  } else if (to.value >= peers_.size()) {
    failed = errc::unknown_worker;
  } else {
    failed = detail::check_outgoing(message.header(), shared_.setup.limits);
  }
  if (failed) {
    if (done) done(failed);
  } else if (to == shared_.setup.self) {
    to_self_.send(std::move(message), std::move(done));
  } else {
    peers_[to.value]->send(detail::OutgoingFrame(std::move(message), std::move(done)));
  }
}

DISTGRAD_DECL std::size_t TcpTransport::run_until(time_point until, std::size_t limit) {
  {
    std::lock_guard lock(life_);
    if (ended_) return 0;
    running_ = true;
  }
  auto const handled = run_events(until, limit);
  std::lock_guard lock(life_);
  running_ = false;
  if (ended_) release_sockets();
  return handled;
}

/// An event brings any number of messages: those beyond the limit stay where they are.
DISTGRAD_DECL std::size_t TcpTransport::run_events(time_point until, std::size_t limit) {
  wakes_ = 0;
  shared_.messages_left = limit;
  shared_.bell.silence();
  bool const sleeps = limit != 0 && until > Clock::now();
  auto handled = sleeps ? shared_.io.run_one_until(until) : 0;
  // A wake alone is no event: others may be ready with it.
  while ((!sleeps || handled == wakes_) && handled - wakes_ < limit && shared_.messages_left != 0 &&
         shared_.io.poll_one() != 0) {
    ++handled;
  }
  return std::max(handled - wakes_, limit - shared_.messages_left);
}

DISTGRAD_DECL std::vector<pollfd> TcpTransport::native_handles() {
  std::vector<pollfd> handles{{shared_.bell.descriptor(), POLLIN, 0}};
  if (auto const fd = listener_.native_handle(); fd >= 0) handles.push_back({fd, POLLIN, 0});
  for (auto const& peer : peers_) {
    if (peer) peer->add_handle(handles);
  }
  return handles;
}

DISTGRAD_DECL std::chrono::nanoseconds TcpTransport::longest_sleep() {
  bool const is_busy =
      listener_.is_busy() || std::ranges::any_of(peers_, [](auto const& peer) {
        return peer && peer->is_connecting();
      });
  return is_busy ? detail::sleep_while_connecting : std::chrono::nanoseconds::max();
}

DISTGRAD_DECL void TcpTransport::wake() noexcept {
  // One in the queue is enough; but that one may be further back than the limit of a run_until.
  if (wake_posted_.exchange(true)) return shared_.bell.ring();
  try {
    shared_.post([this] {
      wake_posted_ = false;
      ++wakes_;
    });
  } catch (std::exception const&) {  // no memory: the next event wakes
    wake_posted_ = false;
  }
}

DISTGRAD_DECL void TcpTransport::close() noexcept { end(true); }
DISTGRAD_DECL void TcpTransport::abandon() noexcept { end(false); }

DISTGRAD_DECL void TcpTransport::end(bool with_goodbye) noexcept {
  if (shared_.closing.exchange(true)) return;
  if (with_goodbye) flush_all();
  for (auto const& peer : peers_) {
    if (peer) peer->stop_writing();
  }
  to_self_.close();
  std::lock_guard lock(life_);
  ended_ = true;
  if (running_) {
    shared_.io.stop();
  } else {
    release_sockets();
  }
}

DISTGRAD_DECL void TcpTransport::flush_all() noexcept {
  for (auto const& peer : peers_) {
    if (peer) peer->say_goodbye();
  }
  // Waits until the peers' kernels have it all: a close with unread input would cut it off.
  auto const deadline = Deadline::after(detail::flush_timeout);
  for (;;) {
    bool all = true;
    for (auto const& peer : peers_) all = (!peer || peer->flush()) && all;
    if (all || deadline.has_passed()) return;
    ::poll(nullptr, 0, 1);
  }
}

DISTGRAD_DECL void TcpTransport::release_sockets() noexcept {
  listener_.close();
  late_.cancel();
  for (auto const& connector : connectors_) connector->close();
  for (auto const& peer : peers_) {
    if (peer) peer->close_socket();
  }
}

}  // namespace distgrad
