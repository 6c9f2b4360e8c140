#pragma once
#include <array>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <boost/beast/http/write.hpp>

#include <distgrad/transport/detail/handshake_channel.hpp>
#include <distgrad/transport/detail/http_status.hpp>
#include <distgrad/transport/detail/io_loop.hpp>
#include <distgrad/transport/detail/websocket_answer.hpp>
#include <distgrad/transport/detail/websocket_stream.hpp>
#include <distgrad/transport/detail/websocket_url.hpp>

namespace distgrad::detail {

/// Most that is read of a request, or of its answer, before the connection is ended.
inline constexpr std::size_t max_request_bytes = 8192;

/// The handshake inside a WebSocket, and before it the HTTP request that asks for one. A request
/// that asks for something else gets an explanation.
class WebSocketChannel final : public HandshakeChannel {
 public:
  WebSocketChannel(IoLoop& loop, Socket socket);

  Socket& socket() override { return stream_.next_layer(); }
  void open(PeerAddress const& to, Done done) override;
  void accept(Done done) override;

  /// For the peer that takes the connection.
  WebSocketStream& stream() { return stream_; }
  /// Whether `open` made it.
  bool is_client() const { return is_client_; }

 private:
  using Request = boost::beast::http::request_parser<boost::beast::http::empty_body>;

  void read(std::span<std::byte> target, Done done) override;
  void write(std::span<std::byte const> bytes, Done done) override;

  void on_request(error_code ec);
  bool asks_for_us() const;
  void explain();
  void drain();
  void finish_opening(error_code ec);
  std::shared_ptr<WebSocketChannel> self() {
    return std::static_pointer_cast<WebSocketChannel>(shared_from_this());
  }

  IoLoop& loop_;
  WebSocketStream stream_;
  bool is_client_ = false;
  Done opened_;
  boost::beast::websocket::response_type response_;
  boost::beast::flat_buffer buffer_{max_request_bytes};
  std::optional<Request> request_;
  HttpAnswer answer_;
  std::array<char, 1024> ignored_;
};

namespace http = boost::beast::http;
namespace websocket = boost::beast::websocket;

/// A client masks what it sends in a buffer of this size. @source RFC 6455 section 5.3
inline constexpr std::size_t mask_buffer_bytes = 64 * 1024;

inline WebSocketChannel::WebSocketChannel(IoLoop& loop, Socket socket)
    : HandshakeChannel(socket.get_executor()), loop_(loop), stream_(std::move(socket)) {
  stream_.binary(true);
  stream_.auto_fragment(false);
  stream_.write_buffer_bytes(mask_buffer_bytes);
  stream_.read_message_max(frame_header_bytes + handshake_limits.max_metadata_bytes);
  // The channel, and later the peer, look at the time themselves. Only a close is left to Beast.
  websocket::stream_base::timeout times{handshake_timeout, websocket::stream_base::none(), false};
  stream_.set_option(times);
}

inline void WebSocketChannel::open(PeerAddress const& to, Done done) {
  is_client_ = true;
  opened_ = std::move(done);
  auto const url = parse_websocket_url(to.endpoint);
  if (!url) return finish_opening(errc::unreachable);
  stream_.set_option(websocket::stream_base::decorator([](websocket::request_type& request) {
    request.set(http::field::sec_websocket_protocol, websocket_subprotocol);
  }));
  stream_.async_handshake(
      response_, to_string(url->at), url->target, [self = self()](error_code ec) {
        auto const answered = self->response_[http::field::sec_websocket_protocol];
        if (ec == websocket::error::upgrade_declined) {
          ec = http_status_error(self->response_.result_int());
        }
        if (!ec && answered != websocket_subprotocol) ec = errc::bad_message;
        self->finish_opening(ec);
      });
}

inline void WebSocketChannel::accept(Done done) {
  opened_ = std::move(done);
  request_.emplace();
  request_->header_limit(max_request_bytes);
  http::async_read_header(stream_.next_layer(), buffer_, *request_,
                          [self = self()](error_code ec, std::size_t) { self->on_request(ec); });
}

inline void WebSocketChannel::on_request(error_code ec) {
  if (ec) return finish_opening(ec);
  if (!asks_for_us()) return explain();
  // A client that sends more than its request, before the answer, is none of ours.
  if (buffer_.size() > 0) return finish_opening(errc::bad_message);
  stream_.set_option(websocket::stream_base::decorator([](websocket::response_type& response) {
    response.set(http::field::sec_websocket_protocol, websocket_subprotocol);
  }));
  stream_.async_accept(request_->get(),
                       [self = self()](error_code failed) { self->finish_opening(failed); });
}

inline bool WebSocketChannel::asks_for_us() const {
  auto const& request = request_->get();
  http::token_list offered(request[http::field::sec_websocket_protocol]);
  return websocket::is_upgrade(request) && offered.exists(websocket_subprotocol);
}

inline void WebSocketChannel::explain() {
  bool const is_head = request_->get().method() == http::verb::head;
  answer_ = upgrade_required(loop_.setup, is_head);
  http::async_write(stream_.next_layer(), answer_, [self = self()](error_code ec, std::size_t) {
    if (ec) return self->finish_opening(ec);
    error_code ignored;
    self->socket().shutdown(Socket::shutdown_send, ignored);
    self->drain();
  });
}

/// A close with unread input would take the answer back, so the other side closes first, or the
/// channel's time ends.
inline void WebSocketChannel::drain() {
  socket().async_read_some(boost::asio::buffer(ignored_),
                           [self = self()](error_code ec, std::size_t) {
                             ec ? self->finish_opening(errc::refused) : self->drain();
                           });
}

inline void WebSocketChannel::finish_opening(error_code ec) {
  if (auto opened = std::move(opened_)) opened(ec);
}

inline void WebSocketChannel::read(std::span<std::byte> target, Done done) {
  boost::asio::async_read(
      stream_, boost::asio::buffer(target.data(), target.size()),
      [self = self(), done = std::move(done)](error_code ec, std::size_t) mutable {
        if (!ec && self->stream_.got_text()) ec = errc::bad_message;
        done(ec);
      });
}

inline void WebSocketChannel::write(std::span<std::byte const> bytes, Done done) {
  stream_.async_write(boost::asio::buffer(bytes.data(), bytes.size()),
                      [self = self(), done = std::move(done)](error_code ec, std::size_t) mutable {
                        if (done) done(ec);
                      });
}

}  // namespace distgrad::detail
