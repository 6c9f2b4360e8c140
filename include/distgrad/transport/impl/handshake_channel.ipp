#pragma once
#include <utility>

#include <distgrad/transport/detail/handshake_channel.hpp>

namespace distgrad::detail {

DISTGRAD_DECL void HandshakeChannel::limit(std::chrono::milliseconds timeout) {
  timer_.expires_after(timeout);
  timer_.async_wait([weak = weak_from_this()](error_code ec) {
    auto self = weak.lock();
    if (!ec && self) self->close();
  });
}

DISTGRAD_DECL void HandshakeChannel::send(std::vector<std::byte> frame, Done done) {
  out_ = std::move(frame);
  write(out_, std::move(done));
}

DISTGRAD_DECL void HandshakeChannel::receive(Received done) {
  received_ = std::move(done);
  read(header_bytes_, [this](error_code ec) { on_header(ec); });
}

DISTGRAD_DECL void HandshakeChannel::on_header(error_code ec) {
  if (!ec) ec = decode_frame_header(header_bytes_, handshake_limits, header_);
  if (ec || header_.metadata_bytes == 0) return finish_receive(ec);
  metadata_.resize(static_cast<std::size_t>(header_.metadata_bytes));
  read(metadata_, [this](error_code ec) { finish_receive(ec); });
}

DISTGRAD_DECL void HandshakeChannel::finish_receive(error_code ec) {
  if (auto received = std::move(received_)) received(ec, header_, std::move(metadata_));
}

DISTGRAD_DECL void HandshakeChannel::close() noexcept {
  error_code ignored;
  timer_.cancel();
  socket().close(ignored);
}

}  // namespace distgrad::detail
