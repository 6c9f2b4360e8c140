#pragma once
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/transport/concept.hpp>
#include <distgrad/transport/detail/io_loop.hpp>
#include <distgrad/transport/detail/self_queue.hpp>
#include <distgrad/transport/detail/serial_peer.hpp>
#include <distgrad/transport/serial_statistics.hpp>

namespace distgrad {

/// Messages over lines of bytes, one line for each peer: UARTs, pseudo-terminals, sockets, pipes. A
/// line may lose, change and invent bytes: packets carry a checksum and are found again after
/// garbage, what was lost is sent again, and where that does not help for `give_up_after` the peer
/// is reported as lost. Without a thread of its own.
///
/// A star is a group whose leaves have one line, to the worker in the middle; sends to workers
/// without a line complete with `unreachable`. Line format: docs/policies/transport.md.
class SerialTransport {
 public:
  using contract = transport_v1;

  /// The line to one peer, by descriptor or by device.
  struct Line {
    WorkerId peer;
    /// Read and written; taken over and closed. A terminal is made raw.
    int descriptor = -1;
    /// Where to write, if not to `descriptor`; taken over, too. A program that writes to pipes
    /// ignores SIGPIPE.
    int output = -1;
    /// A terminal to open instead, as in "/dev/ttyUSB0".
    std::string device = {};
    /// Bits per second of a `device`; 8 data bits, no parity, one stop bit.
    unsigned baud_rate = 115200;
  };
  struct Options {
    std::vector<Line> lines = {};
    /// Longest piece of a message in one packet, 16 to 4096. Short ones suit noisy lines: a bit
    /// error costs a packet. The ends of a line may differ.
    std::size_t piece_bytes = 512;
    /// Pieces that may be unacknowledged, 1 to 1024. What is kept for sending again is at most
    /// `piece_bytes` times this.
    std::size_t window_pieces = 16;
    /// How long a peer may acknowledge nothing of what was sent to it. One that does not poll for
    /// so long is taken for lost.
    milliseconds give_up_after{20000};
  };

  /// @throws Error unreachable or invalid_argument, naming the device or peer.
  explicit SerialTransport(Options options);
  SerialTransport() : SerialTransport(Options{}) {}
  SerialTransport(SerialTransport const&) = delete;
  SerialTransport& operator=(SerialTransport const&) = delete;
  /// Closes. No thread may be inside `run_until`.
  ~SerialTransport();

  /// "serial": who is at the other end of a line is decided by the cable. @threads any.
  std::string local_endpoint() const { return "serial"; }
  /// @throws Error invalid_argument when `setup.self` is not in the group, the sink is null, the
  /// secret is too long, or a line leads to no other member of the group.
  void start(TransportSetup setup);
  /// `done` gets success once the peer has acknowledged every byte. @threads any.
  void async_send(WorkerId to, Message message, SendCompletion done);
  /// Handles at least one event, waiting for it until `until`; `time_point::min()` does not wait.
  /// @return events handled; at most `limit` messages are delivered.
  /// @threads one at a time, after `start`.
  std::size_t run_until(time_point until,
                        std::size_t limit = std::numeric_limits<std::size_t>::max()) {
    return loop_.run_until(until, limit);
  }
  /// The lines, and a descriptor for what needs no line. Changes with every `run_until`.
  /// @throws Error when there are no more descriptors. @threads the one that calls `run_until`.
  std::vector<pollfd> native_handles();
  /// Until a greeting or piece has to be sent again. @threads the one that calls `run_until`.
  std::chrono::nanoseconds longest_sleep();
  /// Makes the running or else the next `run_until` return. @threads any.
  void wake() noexcept { loop_.wake(); }
  /// Sends what waits, for at most a second, says goodbye, and ends. @threads any, also inside a
  /// sink's function.
  void close() noexcept;
  /// Ends like a killed process, without goodbye: peers see a loss. For tests. @threads any.
  void abandon() noexcept;

  /// What the line to `peer` has seen; zeros without one. @threads any, after `start`.
  SerialStatistics statistics(WorkerId peer) const;

 private:
  void report_unreachable();
  void end(bool with_goodbye) noexcept;
  void flush_all() noexcept;
  void release_descriptors() noexcept;

  Options options_;
  detail::IoLoop loop_;  // before all that refers to it
  detail::SelfQueue to_self_;
  /// Indexed by rank once started; null where there is no line.
  std::vector<std::shared_ptr<detail::SerialPeer>> peers_;
  std::atomic<bool> started_{false};
};

static_assert(TransportPolicy<SerialTransport> && BoundedTransport<SerialTransport> &&
              WaitableTransport<SerialTransport>);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/serial_transport.ipp>
#endif
