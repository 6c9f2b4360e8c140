#pragma once
#include <memory>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <distgrad/config.hpp>
#include <distgrad/transport/detail/connection_factory.hpp>
#include <distgrad/transport/detail/handshake_channel.hpp>
#include <distgrad/transport/detail/io_loop.hpp>
#include <distgrad/wire/host_port.hpp>

namespace distgrad::detail {

/// Makes the connection to one peer: every address of its name in turn, again with growing pauses
/// until the setup's `connect_timeout`. A peer that answers and declines is final; somebody in
/// front of it is not, but what he said last is the error.
/// @threads the I/O thread.
class TcpConnector : public std::enable_shared_from_this<TcpConnector> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using OnConnected = unique_function<void(HandshakeChannel&)>;
  using OnFailed = unique_function<void(error_code)>;

  TcpConnector(IoLoop& loop, ConnectionFactory& connections, WorkerId to);

  /// Calls one of the two once, unless closed before.
  void start(OnConnected on_connected, OnFailed on_failed);
  void close() noexcept;

 private:
  void resolve();
  void try_next_address();
  void on_connected(std::shared_ptr<HandshakeChannel> const& channel, error_code ec);
  void say_hello(HandshakeChannel& channel);
  void on_answer(error_code ec, FrameHeader const& header, std::vector<std::byte> const& metadata);
  void retry_later();
  void fail(error_code why);
  bool is_over() const { return !on_failed_; }

  IoLoop& loop_;
  ConnectionFactory& connections_;
  PeerAddress const& peer_;
  HostPort where_;
  Deadline deadline_;
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::steady_timer timer_;
  std::vector<boost::asio::ip::tcp::endpoint> addresses_;
  std::size_t next_ = 0;
  error_code why_not_ = errc::unreachable;  // nobody took the connection, last time
  std::chrono::milliseconds pause_{5};
  std::shared_ptr<HandshakeChannel> channel_;
  OnConnected on_connected_;
  OnFailed on_failed_;
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/tcp_connector.ipp>
#endif
