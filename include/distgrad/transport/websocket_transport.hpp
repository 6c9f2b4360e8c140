#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include <distgrad/transport/concept.hpp>
#include <distgrad/transport/detail/socket_transport.hpp>
#include <distgrad/transport/detail/websocket_channel.hpp>
#include <distgrad/transport/detail/websocket_peer.hpp>
#include <distgrad/transport/detail/websocket_url.hpp>

namespace distgrad {
namespace detail {

/// Frames in WebSocket messages.
class WebSocketConnections final : public ConnectionFactory {
 public:
  explicit WebSocketConnections(milliseconds ping_interval) : ping_interval_(ping_interval) {}

  std::optional<HostPort> locate(std::string_view endpoint) const override {
    auto const url = parse_websocket_url(endpoint);
    return url ? std::optional(url->at) : std::nullopt;
  }
  std::shared_ptr<HandshakeChannel> make_channel(IoLoop& loop, Socket socket) override {
    return std::make_shared<WebSocketChannel>(loop, std::move(socket));
  }
  std::shared_ptr<Peer> make_peer(IoLoop& loop, WorkerId id) override {
    return std::make_shared<WebSocketPeer>(loop, id, ping_interval_);
  }
  std::chrono::nanoseconds longest_sleep() const override {
    if (ping_interval_ > milliseconds(0)) return ping_interval_;
    return ConnectionFactory::longest_sleep();
  }

 private:
  milliseconds ping_interval_;
};

}  // namespace detail

/// Messages over WebSockets, for workers that reach each other only through HTTP: a reverse proxy,
/// a gateway, an ingress. The proxy may serve several workers, each on a path of its own. Otherwise
/// as `TcpTransport`, which is faster where a plain connection can be made: here the I/O thread
/// does all the writing, and what the connecting side sends is masked byte by byte.
///
/// Endpoints read "ws://host:port/path". A worker takes connections on any path: who is meant is
/// said in the handshake. A request that asks for no WebSocket is told what this is.
///
/// Nothing is encrypted, and the job secret crosses the network in clear.
class WebSocketTransport : public detail::SocketTransport {
 public:
  struct Options {
    /// Address or name of an interface of this machine. Empty: all, IPv6 and IPv4.
    std::string bind_address;
    /// 0: a free one, chosen by the kernel.
    std::uint16_t port = 0;
    /// The URL that others are told to connect to, as in "ws://proxy:8080/w0". Empty: this
    /// machine's address as in `TcpTransport`, the port, and "/".
    std::string advertise;
    /// After so long the connecting side pings, so that no proxy takes the connection for idle;
    /// whoever hears nothing for three intervals gives the peer up as lost. The same for all
    /// workers, who therefore have to run their loops more often than that. Zero: no pings.
    milliseconds ping_interval{20000};
  };

  /// Listens; connections wait in the kernel until `start`.
  /// @throws Error address_in_use, unreachable or invalid_argument, naming address and port.
  explicit WebSocketTransport(Options options)
      : SocketTransport(std::make_unique<detail::WebSocketConnections>(options.ping_interval),
                        options.bind_address, options.port) {
    endpoint_ = options.advertise;
    if (endpoint_.empty()) endpoint_ = to_string(detail::WebSocketUrl{reachable_at({}), "/"});
    if (detail::parse_websocket_url(endpoint_)) return;
    throw_error(errc::invalid_argument,
                "cannot advertise '" + endpoint_ + "': an endpoint reads ws://host:port/path");
  }
  WebSocketTransport() : WebSocketTransport(Options{}) {}
};

static_assert(BoundedTransport<WebSocketTransport> && WaitableTransport<WebSocketTransport>);

}  // namespace distgrad
