#pragma once
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/websocket/error.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <distgrad/core/error.hpp>

namespace distgrad::detail {

/// A socket that Beast shuts down but never closes: threads that send or close use its descriptor,
/// so that only the peer that owns it may let go of the number.
struct WebSocketSocket : boost::asio::ip::tcp::socket {
  explicit WebSocketSocket(boost::asio::ip::tcp::socket&& socket)
      : boost::asio::ip::tcp::socket(std::move(socket)) {}

  // Beast finds these by their arguments, in place of its own.
  friend void beast_close_socket(WebSocketSocket& socket) {
    error_code ignored;
    socket.shutdown(shutdown_both, ignored);
  }
  friend void teardown(boost::beast::role_type, WebSocketSocket& socket, error_code& ec) {
    socket.shutdown(shutdown_send, ec);
  }
  template <class Handler>
  friend void async_teardown(boost::beast::role_type, WebSocketSocket& socket, Handler&& handler) {
    error_code ec;
    socket.shutdown(shutdown_send, ec);
    boost::asio::post(socket.get_executor(),
                      boost::beast::bind_front_handler(std::forward<Handler>(handler), ec));
  }
};

/// What carries the messages; the one place that says there is no TLS below.
using WebSocketStream = boost::beast::websocket::stream<WebSocketSocket, false>;

/// Both sides name it: no browser or other program gets further by accident.
inline constexpr char const* websocket_subprotocol = "distgrad";

/// What a peer meant that closed with `code`.
inline errc errc_of_close(boost::beast::websocket::close_reason const& reason) {
  using boost::beast::websocket::close_code;
  switch (reason.code) {
    case close_code::normal: return errc::closed;
    case close_code::protocol_error:
    case close_code::unknown_data:
    case close_code::bad_payload: return errc::bad_message;
    case close_code::policy_error: return errc::refused;
    case close_code::too_big: return errc::frame_too_large;
    default: return errc::peer_lost;
  }
}

/// The code that tells a peer why it is lost.
inline boost::beast::websocket::close_code close_code_of(error_code why) {
  using boost::beast::websocket::close_code;
  if (why == errc::closed) return close_code::normal;
  if (why == errc::frame_too_large) return close_code::too_big;
  if (why == condition::bad_message) return close_code::protocol_error;
  return close_code::internal_error;
}

/// Why a read failed.
inline error_code read_failure(error_code ec, boost::beast::websocket::close_reason const& reason) {
  namespace websocket = boost::beast::websocket;
  if (ec == websocket::error::closed) return errc_of_close(reason);
  if (ec == websocket::error::message_too_big) return errc::frame_too_large;
  if (ec == websocket::condition::protocol_violation) return errc::bad_message;
  return errc::peer_lost;
}

}  // namespace distgrad::detail
