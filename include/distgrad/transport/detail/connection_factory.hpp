#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>

#include <distgrad/core/ids.hpp>
#include <distgrad/wire/host_port.hpp>

namespace distgrad::detail {

class IoLoop;
class HandshakeChannel;
class Peer;

/// How a transport over sockets carries its frames: as they are, or wrapped. A peer is attached to
/// channels of its own factory only.
class ConnectionFactory {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  virtual ~ConnectionFactory() = default;
  /// Where to connect to; nothing when `endpoint` is not of this kind.
  virtual std::optional<HostPort> locate(std::string_view endpoint) const = 0;
  virtual std::shared_ptr<HandshakeChannel> make_channel(IoLoop& loop, Socket socket) = 0;
  virtual std::shared_ptr<Peer> make_peer(IoLoop& loop, WorkerId id) = 0;
  /// How long its peers may be left alone while their sockets are silent.
  virtual std::chrono::nanoseconds longest_sleep() const { return std::chrono::nanoseconds::max(); }
};

}  // namespace distgrad::detail
