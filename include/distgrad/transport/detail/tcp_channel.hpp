#pragma once
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <distgrad/transport/detail/handshake_channel.hpp>

namespace distgrad::detail {

/// The handshake on a bare socket.
class TcpChannel final : public HandshakeChannel {
 public:
  explicit TcpChannel(Socket socket)
      : HandshakeChannel(socket.get_executor()), socket_(std::move(socket)) {}

  Socket& socket() override { return socket_; }
  void open(PeerAddress const&, Done done) override { done({}); }
  void accept(Done done) override { done({}); }

 private:
  auto keep_alive(Done done) {
    return [self = shared_from_this(), done = std::move(done)](error_code ec, std::size_t) mutable {
      if (done) done(ec);
    };
  }

  void read(std::span<std::byte> target, Done done) override {
    boost::asio::async_read(socket_, boost::asio::buffer(target.data(), target.size()),
                            keep_alive(std::move(done)));
  }
  void write(std::span<std::byte const> bytes, Done done) override {
    boost::asio::async_write(socket_, boost::asio::buffer(bytes.data(), bytes.size()),
                             keep_alive(std::move(done)));
  }

  Socket socket_;
};

}  // namespace distgrad::detail
