#pragma once
#include <array>
#include <memory>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <distgrad/config.hpp>
#include <distgrad/core/unique_function.hpp>
#include <distgrad/transport/detail/handshake.hpp>

namespace distgrad::detail {

/// A connection whose other end is not known yet: exchanges one small frame each way under a
/// deadline, and never reads a byte beyond it. An operation keeps the channel alive; a completion
/// must not own it. @threads the I/O thread.
class HandshakeChannel : public std::enable_shared_from_this<HandshakeChannel> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Received = unique_function<void(error_code, FrameHeader const&, std::vector<std::byte>)>;
  using Sent = unique_function<void(error_code)>;

  explicit HandshakeChannel(Socket socket);

  Socket& socket() { return socket_; }
  /// Ends the exchange with an error, unless it is finished in time.
  void limit(std::chrono::milliseconds timeout);
  void send(std::vector<std::byte> frame, Sent done);
  void receive(Received done);
  /// The connection for further use; the channel is finished.
  Socket release();
  void close() noexcept;

 private:
  void on_header(error_code ec);
  void finish_receive(error_code ec);

  Socket socket_;
  boost::asio::steady_timer timer_;
  std::vector<std::byte> out_;
  Sent sent_;
  FrameHeaderBytes header_bytes_{};
  FrameHeader header_;
  std::vector<std::byte> metadata_;
  Received received_;
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/handshake_channel.ipp>
#endif
