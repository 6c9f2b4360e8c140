#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/transport/detail/go_back_n.hpp>
#include <distgrad/transport/detail/outgoing_frame.hpp>
#include <distgrad/transport/detail/serial_framing.hpp>
#include <distgrad/transport/detail/serial_packet.hpp>
#include <distgrad/transport/serial_statistics.hpp>

namespace distgrad::detail {

struct SerialLinkOptions {
  std::size_t piece_bytes = 512;
  std::size_t window_pieces = 16;
  Clock::duration give_up_after = std::chrono::seconds(20);
  Clock::duration connect_timeout = std::chrono::seconds(30);
};

/// One end of a serial line, without I/O: bytes of the line and the time come in; bytes for the
/// line and the peer's stream, whole and in order, come out.
///
///   state      | event                                     | next, and what is said
///   -----------+-------------------------------------------+----------------------------------
///   connecting | pause is over                             | hello, wanting an answer
///   connecting | a good hello that knows our session       | open; hello if it wants an answer
///   connecting | a good hello that does not                | hello
///   connecting | a packet for our session from the peer's  | open
///   connecting | a bad hello                               | hello with the reason
///   connecting | a hello of another protocol version       | ended: version_mismatch
///   connecting | `connect_timeout` is over                 | ended: unreachable
///   open       | a good hello of the same session          | hello if it wants an answer
///   open       | a good hello of another session           | ended: the peer has started anew
///   open       | nothing acknowledged for `give_up_after`  | ended: peer_lost
///   any        | a hello that declines us                  | ended: the reason
///   ended      | a hello that wants an answer              | hello that declines: refused
///   ended      | data                                      | ack: the peer may be waiting for it
///
/// Both ends are equal. A session is a random number for each life of an end.
/// @threads one at a time.
class SerialLink {
 public:
  enum class State { connecting, open, ended };
  struct Ends {
    WorkerInfo self, peer;
    std::string secret;
    std::uint32_t session = 1;  ///< not 0
  };

  SerialLink(SerialLinkOptions const& options, Ends ends, time_point now);

  State state() const { return state_; }
  /// Why it ended.
  error_code why() const { return why_; }
  /// Gives up: nothing is delivered any more.
  void end(error_code why);

  /// `bytes` came over the line. Appends to `stream` what follows in the peer's stream.
  void receive(std::span<std::byte const> bytes, time_point now, std::vector<std::byte>& stream);
  void tick(time_point now);
  /// When `tick` wants to be called.
  std::optional<time_point> next_deadline() const;

  void push(OutgoingFrame frame) { queue_.push_back(std::move(frame)); }
  /// What to write to the line next: one packet, valid until the next call; empty for nothing.
  std::span<std::byte const> next_line(time_point now);
  /// Frames that have arrived since the last call.
  std::vector<OutgoingFrame> take_arrived() { return std::exchange(arrived_, {}); }
  /// Frames of which nobody knows whether they have.
  std::vector<OutgoingFrame> take_unfinished();
  /// Whether all that was pushed has arrived.
  bool has_arrived() const { return sender_.is_empty() && queue_.empty(); }

  SerialStatistics statistics() const;

 private:
  void on_packet(std::span<std::byte const> bytes, time_point now, std::vector<std::byte>& stream);
  void on_hello(SerialHello const& hello);
  error_code judge(SerialHello const& hello) const;
  void decline(SerialHello const& hello, error_code why);
  void answer_ended(SerialHello const& hello);
  void cut_pieces();
  void say_hello(time_point now);
  void say(SerialPacketKind kind);
  void say_piece(GoBackNSender::Piece const& piece);

  SerialLinkOptions options_;
  Ends ends_;
  State state_ = State::connecting;
  error_code why_;
  time_point connect_until_, hello_at_;
  Clock::duration hello_pause_;
  std::uint32_t peer_session_ = 0;
  bool hello_due_ = false;
  // The next hello declines the other end's session `decline_to_`, unless the status is 0.
  std::int32_t decline_ = 0;
  std::uint32_t decline_to_ = 0;

  LineDecoder decoder_{max_serial_packet_bytes};
  GoBackNSender sender_;
  GoBackNReceiver receiver_;
  std::deque<OutgoingFrame> queue_;      // not yet cut, or only in part
  std::deque<OutgoingFrame> in_flight_;  // cut into pieces of which some are unacknowledged
  std::vector<OutgoingFrame> arrived_;
  std::vector<std::byte> packet_, line_;  // reused
  SerialStatistics statistics_;
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/serial_link.ipp>
#endif
