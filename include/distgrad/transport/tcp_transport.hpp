#pragma once
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/steady_timer.hpp>

#include <distgrad/config.hpp>
#include <distgrad/transport/concept.hpp>
#include <distgrad/transport/detail/self_queue.hpp>
#include <distgrad/transport/detail/tcp_connector.hpp>
#include <distgrad/transport/detail/tcp_listener.hpp>
#include <distgrad/transport/detail/tcp_peer.hpp>
#include <distgrad/transport/detail/tcp_shared.hpp>

namespace distgrad {

/// Messages over TCP: one ordered connection per pair of workers, made at `start` by the higher
/// rank. A send on an idle connection is written by the calling thread; payloads go from the
/// sender's tensor to the socket and from the socket to where the receiver's sink wants them,
/// without a copy in between.
///
/// What waits to be written is not bounded: a sender faster than its peer should count its own
/// unfinished sends. Nothing is encrypted, and the job secret crosses the network in clear: use it
/// against accidents and on trusted networks.
class TcpTransport {
 public:
  using contract = transport_v1;
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
  TcpTransport(TcpTransport const&) = delete;
  TcpTransport& operator=(TcpTransport const&) = delete;
  /// Closes. No thread may be inside `run_until`.
  ~TcpTransport();

  /// "host:port" or "[address]:port". @threads any.
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
                        std::size_t limit = std::numeric_limits<std::size_t>::max());
  /// The listener, the open connections, and a descriptor for what needs no socket. Changes with
  /// every `run_until`. @throws Error when there are no more descriptors.
  /// @threads the one that calls `run_until`.
  std::vector<pollfd> native_handles();
  /// While connections are being made or greeted, which needs timers and sockets that are no
  /// handles, 10 ms; otherwise for ever. @threads the one that calls `run_until`.
  std::chrono::nanoseconds longest_sleep();
  /// Makes the running or else the next `run_until` return. @threads any.
  void wake() noexcept;
  /// Writes what waits, for at most a second, says goodbye, and ends all connections.
  /// @threads any, also inside a sink's function.
  void close() noexcept;
  /// Ends like a killed process, without goodbye: peers see a loss. For tests. @threads any.
  void abandon() noexcept;

 private:
  void connect(WorkerId to);
  void watch_for_late_peers();
  void end(bool with_goodbye) noexcept;
  void flush_all() noexcept;
  void release_sockets() noexcept;
  std::size_t run_events(time_point until, std::size_t limit);

  detail::TcpShared shared_;  // first: all below refer to it
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  detail::TcpListener listener_;
  std::string endpoint_;
  detail::SelfQueue to_self_;
  boost::asio::steady_timer late_;
  /// Indexed by rank; null for this worker.
  std::vector<std::shared_ptr<detail::TcpPeer>> peers_;
  std::vector<std::shared_ptr<detail::TcpConnector>> connectors_;
  std::atomic<bool> started_{false}, wake_posted_{false};
  std::size_t wakes_ = 0;  // handlers that were only wakes; the I/O thread's

  std::mutex life_;  // guards the next two
  bool running_ = false;
  bool ended_ = false;
};

static_assert(BoundedTransport<TcpTransport> && WaitableTransport<TcpTransport>);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/tcp_transport.ipp>
#endif
