#pragma once
#include <array>
#include <memory>
#include <span>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <distgrad/config.hpp>
#include <distgrad/core/unique_function.hpp>
#include <distgrad/transport/detail/handshake.hpp>

namespace distgrad::detail {

/// A connection whose other end is not known yet: exchanges one small frame each way under a
/// deadline, and never reads a byte beyond it. An operation keeps the channel alive; a completion
/// must not own it. Subclasses say how bytes travel. @threads the I/O thread.
class HandshakeChannel : public std::enable_shared_from_this<HandshakeChannel> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Done = unique_function<void(error_code)>;
  using Received = unique_function<void(error_code, FrameHeader const&, std::vector<std::byte>)>;

  virtual ~HandshakeChannel() = default;

  virtual Socket& socket() = 0;
  /// Prepares the connected socket for frames, as the side that connected to `to`. Who is in front
  /// of `to`, and cannot reach it, shows as an error that is `condition::peer_lost`.
  virtual void open(PeerAddress const& to, Done done) = 0;
  /// The same as the side that was connected to.
  virtual void accept(Done done) = 0;

  /// Ends the exchange with an error, unless it is finished in time.
  void limit(std::chrono::milliseconds timeout);
  void send(std::vector<std::byte> frame, Done done);
  void receive(Received done);
  /// The exchange is over; whoever takes the connection bounds its own waits.
  void finish() { timer_.cancel(); }
  void close() noexcept;

 protected:
  explicit HandshakeChannel(Socket::executor_type const& executor) : timer_(executor) {}

  /// Fills `target`.
  virtual void read(std::span<std::byte> target, Done done) = 0;
  /// Writes all of `bytes`, which are one frame.
  virtual void write(std::span<std::byte const> bytes, Done done) = 0;

 private:
  void on_header(error_code ec);
  void finish_receive(error_code ec);

  boost::asio::steady_timer timer_;
  std::vector<std::byte> out_;
  FrameHeaderBytes header_bytes_{};
  FrameHeader header_;
  std::vector<std::byte> metadata_;
  Received received_;
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/handshake_channel.ipp>
#endif
