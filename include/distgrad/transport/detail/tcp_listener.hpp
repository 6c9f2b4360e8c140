#pragma once
#include <list>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <distgrad/config.hpp>
#include <distgrad/transport/detail/connection_factory.hpp>
#include <distgrad/transport/detail/handshake_channel.hpp>
#include <distgrad/transport/detail/io_loop.hpp>
#include <distgrad/wire/host_port.hpp>

namespace distgrad::detail {

/// Most connections that have not said a valid hello yet; beyond, the oldest is ended.
inline constexpr std::size_t max_strangers = 64;

/// Accepts connections and finds out who they are. A stranger costs one socket and what its kind of
/// channel reads before the hello, and 4 KiB, for at most five seconds. @threads the I/O thread,
/// apart from `local_endpoint`.
class TcpListener {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using OnPeer = unique_function<void(WorkerId, HandshakeChannel&)>;

  /// Listens at once; connections wait in the kernel until `start`.
  /// @throws Error address_in_use, unreachable, invalid_argument; naming address and port.
  TcpListener(IoLoop& loop, ConnectionFactory& connections, std::string const& bind_address,
              std::uint16_t port);

  boost::asio::ip::tcp::endpoint local_endpoint() const { return local_; }
  /// @param on_peer takes the connections of authenticated peers.
  void start(OnPeer on_peer);
  void close() noexcept;
  /// What a loop outside waits on for new connections; -1 once closed.
  int native_handle() { return acceptor_.is_open() ? acceptor_.native_handle() : -1; }
  /// Whether timers run, or connections are read, that nobody outside knows of.
  bool is_busy() const { return is_pausing_ || !strangers_.empty(); }

 private:
  error_code open(boost::asio::ip::tcp::endpoint const& at, bool dual_stack);
  void accept();
  void greet(Socket socket);
  void expect_hello(HandshakeChannel& channel);
  void judge(HandshakeChannel& channel, FrameHeader const& header,
             std::vector<std::byte> const& metadata);
  void dismiss(HandshakeChannel& channel);
  void forget(HandshakeChannel const& channel);

  IoLoop& loop_;
  ConnectionFactory& connections_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::ip::tcp::endpoint local_;
  boost::asio::steady_timer pause_;
  bool is_pausing_ = false;
  std::list<std::shared_ptr<HandshakeChannel>> strangers_;
  OnPeer on_peer_;
};

/// The address other workers should use for one that listens on all addresses: that of the
/// interface towards the default route, or 127.0.0.1 without one. Sends nothing.
DISTGRAD_DECL std::string outgoing_address(boost::asio::io_context& io);

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/tcp_listener.ipp>
#endif
