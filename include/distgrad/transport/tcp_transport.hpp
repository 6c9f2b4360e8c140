#pragma once
#include <cstdint>
#include <string>

#include <distgrad/config.hpp>
#include <distgrad/transport/concept.hpp>
#include <distgrad/transport/detail/socket_transport.hpp>

namespace distgrad {

/// Messages over TCP: one ordered connection per pair of workers, made at `start` by the higher
/// rank. A send on an idle connection is written by the calling thread; payloads go from the
/// sender's tensor to the socket and from the socket to where the receiver's sink wants them,
/// without a copy in between. Endpoints read "host:port" or "[address]:port".
///
/// What waits to be written is not bounded: a sender faster than its peer should count its own
/// unfinished sends. Nothing is encrypted, and the job secret crosses the network in clear: use it
/// against accidents and on trusted networks.
class TcpTransport : public detail::SocketTransport {
 public:
  struct Options {
    /// Address or name of an interface of this machine. Empty: all, IPv6 and IPv4.
    std::string bind_address;
    /// 0: a free one, chosen by the kernel.
    std::uint16_t port = 0;
    /// What others are told to connect to. Empty: `bind_address`; when that is empty, too, the
    /// address of the interface towards the default route, or 127.0.0.1 without one.
    std::string advertise_address;
  };

  /// Listens; connections wait in the kernel until `start`.
  /// @throws Error address_in_use, unreachable or invalid_argument, naming address and port.
  explicit TcpTransport(Options options);
  TcpTransport() : TcpTransport(Options{}) {}
};

static_assert(BoundedTransport<TcpTransport> && WaitableTransport<TcpTransport>);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/tcp_transport.ipp>
#endif
