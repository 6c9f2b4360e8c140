#pragma once
#include <algorithm>
#include <utility>

#include <distgrad/transport/detail/tcp_connector.hpp>

namespace distgrad::detail {

/// One address may be a black hole; the next one gets its turn after this long.
inline constexpr std::chrono::milliseconds attempt_timeout{3000};
inline constexpr std::chrono::milliseconds longest_pause{500};

DISTGRAD_DECL TcpConnector::TcpConnector(IoLoop& loop, ConnectionFactory& connections, WorkerId to)
    : loop_(loop),
      connections_(connections),
      peer_(loop.setup.group[to.value]),
      deadline_(Deadline::after(loop.setup.connect_timeout)),
      resolver_(loop.io),
      timer_(loop.io) {}

DISTGRAD_DECL void TcpConnector::start(OnConnected on_connected, OnFailed on_failed) {
  on_connected_ = std::move(on_connected);
  on_failed_ = std::move(on_failed);
  auto const where = connections_.locate(peer_.endpoint);
  if (!where) return fail(errc::unreachable);
  where_ = *where;
  resolve();
}

DISTGRAD_DECL void TcpConnector::close() noexcept {
  on_failed_ = nullptr;
  on_connected_ = nullptr;
  resolver_.cancel();
  timer_.cancel();
  if (channel_) channel_->close();
}

DISTGRAD_DECL void TcpConnector::resolve() {
  next_ = 0;
  error_code ec;
  auto const literal = boost::asio::ip::make_address(where_.host, ec);
  if (!ec) {
    addresses_ = {{literal, where_.port}};
    return try_next_address();
  }
  resolver_.async_resolve(
      where_.host, std::to_string(where_.port),
      [self = shared_from_this()](error_code ec,
                                  boost::asio::ip::tcp::resolver::results_type const& found) {
        if (self->is_over()) return;
        self->addresses_.clear();
        if (!ec) {
          for (auto const& entry : found) self->addresses_.push_back(entry.endpoint());
        }
        self->try_next_address();
      });
}

DISTGRAD_DECL void TcpConnector::try_next_address() {
  if (next_ == addresses_.size()) return retry_later();
  auto const address = addresses_[next_++];
  channel_ = connections_.make_channel(loop_, Socket(loop_.io));
  channel_->limit(attempt_timeout);
  channel_->socket().async_connect(address,
                                   [self = shared_from_this(), channel = channel_](error_code ec) {
                                     self->on_connected(channel, ec);
                                   });
}

DISTGRAD_DECL void TcpConnector::on_connected(std::shared_ptr<HandshakeChannel> const& channel,
                                              error_code ec) {
  if (is_over()) return;
  if (ec) {
    channel->close();
    why_not_ = errc::unreachable;
    return try_next_address();
  }
  channel->limit(handshake_timeout);
  channel->open(peer_, [weak = weak_from_this(), channel = channel.get()](error_code failed) {
    auto const me = weak.lock();
    if (!me || me->is_over()) return;
    if (!failed) return me->say_hello(*channel);
    channel->close();
    if (failed == condition::peer_lost) me->why_not_ = failed;
    me->try_next_address();
  });
}

DISTGRAD_DECL void TcpConnector::say_hello(HandshakeChannel& channel) {
  auto const& self = loop_.setup.group[loop_.setup.self.value].info;
  Hello hello{self.id, self.incarnation, peer_.info.id, loop_.setup.job_secret};
  // A failure to send shows in the answer, too.
  channel.send(encode_hello(hello), nullptr);
  channel.receive([weak = weak_from_this()](error_code failed, FrameHeader const& header,
                                            std::vector<std::byte> metadata) {
    if (auto me = weak.lock()) me->on_answer(failed, header, metadata);
  });
}

DISTGRAD_DECL void TcpConnector::on_answer(error_code ec, FrameHeader const& header,
                                           std::vector<std::byte> const& metadata) {
  if (is_over()) return;
  auto const channel = std::move(channel_);
  auto const welcome = ec ? std::nullopt : decode_welcome(header, metadata);
  if (!welcome) {
    channel->close();
    if (ec == errc::version_mismatch) return fail(ec);
    return try_next_address();
  }
  if (auto const bad = judge_welcome(*welcome, peer_.info)) {
    channel->close();
    return fail(bad);
  }
  on_failed_ = nullptr;
  auto connected = std::move(on_connected_);
  connected(*channel);
}

DISTGRAD_DECL void TcpConnector::retry_later() {
  if (deadline_.has_passed()) return fail(why_not_);
  timer_.expires_after(pause_);
  pause_ = std::min(pause_ * 2, longest_pause);
  timer_.async_wait([self = shared_from_this()](error_code ec) {
    if (!ec && !self->is_over()) self->resolve();
  });
}

DISTGRAD_DECL void TcpConnector::fail(error_code why) {
  on_connected_ = nullptr;
  channel_ = nullptr;
  auto failed = std::move(on_failed_);
  failed(why);
}

}  // namespace distgrad::detail
