#pragma once
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include <distgrad/config.hpp>
#include <distgrad/transport/concept.hpp>
#include <distgrad/transport/detail/connection_factory.hpp>
#include <distgrad/transport/detail/io_loop.hpp>
#include <distgrad/transport/detail/peer.hpp>
#include <distgrad/transport/detail/self_queue.hpp>
#include <distgrad/transport/detail/tcp_connector.hpp>
#include <distgrad/transport/detail/tcp_listener.hpp>

namespace distgrad::detail {

/// What transports over TCP sockets share: one ordered connection per pair of workers, made at
/// `start` by the higher rank. Models derive from it, give it a way to carry frames, and say what
/// their endpoint looks like.
class SocketTransport {
 public:
  using contract = transport_v1;

  SocketTransport(SocketTransport const&) = delete;
  SocketTransport& operator=(SocketTransport const&) = delete;

  /// What other workers connect to. @threads any.
  std::string local_endpoint() const { return endpoint_; }
  /// @throws Error invalid_argument when `setup.self` is not in the group, the sink is null or the
  /// secret is too long.
  void start(TransportSetup setup);
  /// @threads any.
  void async_send(WorkerId to, Message message, SendCompletion done);
  /// Handles at least one event, waiting for it until `until`; `time_point::min()` does not wait.
  /// @return events handled, at most `limit`; each delivers at most one message then.
  /// @threads one at a time, after `start`.
  std::size_t run_until(time_point until,
                        std::size_t limit = std::numeric_limits<std::size_t>::max()) {
    return loop_.run_until(until, limit);
  }
  /// The listener, the open connections, and a descriptor for what needs no socket. Changes with
  /// every `run_until`. @throws Error when there are no more descriptors.
  /// @threads the one that calls `run_until`.
  std::vector<pollfd> native_handles();
  /// While connections are being made or greeted, which needs timers and sockets that are no
  /// handles, 10 ms; otherwise as long as the peers' own timers allow.
  /// @threads the one that calls `run_until`.
  std::chrono::nanoseconds longest_sleep();
  /// Makes the running or else the next `run_until` return. @threads any.
  void wake() noexcept { loop_.wake(); }
  /// Writes what waits and a goodbye, also to peers that connect within five seconds, for at most a
  /// second after that, and ends all connections.
  /// @threads any, also inside a sink's function.
  void close() noexcept;
  /// Ends like a killed process, without goodbye: peers see a loss. For tests. @threads any.
  void abandon() noexcept;

 protected:
  /// Listens; connections wait in the kernel until `start`.
  SocketTransport(std::unique_ptr<ConnectionFactory> connections, std::string const& bind_address,
                  std::uint16_t port);
  /// Closes. No thread may be inside `run_until`.
  ~SocketTransport();

  /// The listening port on a host that others can reach: `asked`; when that is empty, the address
  /// that is bound; when that is any, the one of the interface towards the default route.
  HostPort reachable_at(std::string const& asked);

  std::string endpoint_;

 private:
  void connect(WorkerId to);
  void watch_for_late_peers();
  void end(bool with_goodbye) noexcept;
  bool is_connecting() const;
  void say_goodbye() noexcept;
  void release_sockets() noexcept;

  // First: all below refer to them.
  std::unique_ptr<ConnectionFactory> connections_;
  IoLoop loop_;

  TcpListener listener_;
  SelfQueue to_self_;
  boost::asio::steady_timer late_;
  /// Indexed by rank; null for this worker.
  std::vector<std::shared_ptr<Peer>> peers_;
  std::vector<std::shared_ptr<TcpConnector>> connectors_;
  std::atomic<bool> started_{false};
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/socket_transport.ipp>
#endif
