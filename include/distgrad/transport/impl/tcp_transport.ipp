#pragma once
#include <distgrad/transport/detail/tcp_channel.hpp>
#include <distgrad/transport/detail/tcp_peer.hpp>
#include <distgrad/transport/tcp_transport.hpp>

namespace distgrad {
namespace detail {

/// Frames as they are.
class TcpConnections final : public ConnectionFactory {
 public:
  std::optional<HostPort> locate(std::string_view endpoint) const override {
    return parse_host_port(endpoint);
  }
  std::shared_ptr<HandshakeChannel> make_channel(IoLoop&, Socket socket) override {
    return std::make_shared<TcpChannel>(std::move(socket));
  }
  std::shared_ptr<Peer> make_peer(IoLoop& loop, WorkerId id) override {
    return std::make_shared<TcpPeer>(loop, id);
  }
};

}  // namespace detail

DISTGRAD_DECL TcpTransport::TcpTransport(Options options)
    : SocketTransport(std::make_unique<detail::TcpConnections>(), options.bind_address,
                      options.port) {
  endpoint_ = to_string(reachable_at(options.advertise_address));
}

}  // namespace distgrad
