#pragma once
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <distgrad/transport/detail/handshake_channel.hpp>

namespace distgrad::detail {

DISTGRAD_DECL HandshakeChannel::HandshakeChannel(Socket socket)
    : socket_(std::move(socket)), timer_(socket_.get_executor()) {}

DISTGRAD_DECL void HandshakeChannel::limit(std::chrono::milliseconds timeout) {
  timer_.expires_after(timeout);
  timer_.async_wait([weak = weak_from_this()](error_code ec) {
    auto self = weak.lock();
    if (!ec && self) self->close();
  });
}

DISTGRAD_DECL void HandshakeChannel::send(std::vector<std::byte> frame, Sent done) {
  out_ = std::move(frame);
  sent_ = std::move(done);
  boost::asio::async_write(socket_, boost::asio::buffer(out_),
                           [self = shared_from_this()](error_code ec, std::size_t) {
                             if (auto sent = std::move(self->sent_)) sent(ec);
                           });
}

DISTGRAD_DECL void HandshakeChannel::receive(Received done) {
  received_ = std::move(done);
  boost::asio::async_read(
      socket_, boost::asio::buffer(header_bytes_),
      [self = shared_from_this()](error_code ec, std::size_t) { self->on_header(ec); });
}

DISTGRAD_DECL void HandshakeChannel::on_header(error_code ec) {
  if (!ec) ec = decode_frame_header(header_bytes_, handshake_limits, header_);
  if (ec) return finish_receive(ec);
  metadata_.resize(static_cast<std::size_t>(header_.metadata_bytes));
  boost::asio::async_read(
      socket_, boost::asio::buffer(metadata_),
      [self = shared_from_this()](error_code ec, std::size_t) { self->finish_receive(ec); });
}

DISTGRAD_DECL void HandshakeChannel::finish_receive(error_code ec) {
  if (auto received = std::move(received_)) received(ec, header_, std::move(metadata_));
}

DISTGRAD_DECL HandshakeChannel::Socket HandshakeChannel::release() {
  timer_.cancel();
  return std::move(socket_);
}

DISTGRAD_DECL void HandshakeChannel::close() noexcept {
  error_code ignored;
  timer_.cancel();
  socket_.close(ignored);
}

}  // namespace distgrad::detail
