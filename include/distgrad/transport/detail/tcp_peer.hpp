#pragma once
#include <optional>

#include <boost/asio/ip/tcp.hpp>

#include <distgrad/config.hpp>
#include <distgrad/transport/detail/peer.hpp>

namespace distgrad::detail {

/// A peer on a bare socket.
///
/// Writing: whoever holds the mutex, with non-blocking calls, so that order holds between direct
/// and queued writes. Reading and everything Asio: the I/O thread.
class TcpPeer final : public Peer {
 public:
  using Peer::Peer;

  void attach(HandshakeChannel& channel) override;
  bool flush() override;
  void close_socket() override;

 private:
  using Socket = boost::asio::ip::tcp::socket;

  // With mutex_ held:
  void write_directly(OutgoingFrame& frame) override;
  void disconnect(error_code why) override;
  void write_queue(Frames& finished);
  std::ptrdiff_t write(std::span<iovec> pieces);

  void arm_write() override;
  void on_writable();
  void read();
  void on_read(error_code ec, std::size_t count);
  void go_on();
  bool read_more();
  std::shared_ptr<TcpPeer> self() { return std::static_pointer_cast<TcpPeer>(shared_from_this()); }

  // The I/O thread's:
  std::optional<Socket> socket_;
  std::size_t asked_bytes_ = 0;  // by the read in progress
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/tcp_peer.ipp>
#endif
