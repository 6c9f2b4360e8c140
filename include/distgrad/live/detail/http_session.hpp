#pragma once
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <distgrad/live/detail/http_message.hpp>

namespace distgrad::detail {

struct HttpLimits {
  std::size_t max_connections = 64;
  std::uint32_t max_header_bytes = 8192;
  // For a request to arrive, for an answer to leave, and for a connection without either.
  std::chrono::milliseconds timeout{10000};
  // Whether only addresses and "localhost" are taken for this server's name.
  bool checks_host = true;
};

// One connection: reads a request's header, has it answered, and reads the next. Bodies are not
// read: there is no request here that has one.
//
//   reading -> answering   a header arrived; or what is wrong with it is answered at once
//   answering -> writing   the handler replied
//   writing -> reading     the answer is sent; closed instead if either side wants that
//   any -> closed          end of the connection, an error, or the timeout
class HttpSession : public std::enable_shared_from_this<HttpSession> {
  using error_code = boost::system::error_code;
  using Response = boost::beast::http::response<boost::beast::http::string_body>;

 public:
  using OnClosed = std::function<void(std::shared_ptr<HttpSession> const&)>;

  // `limits`, `handler` and `on_closed` outlive the loop that runs the session.
  HttpSession(boost::asio::ip::tcp::socket socket, std::weak_ptr<boost::asio::io_context> loop,
              HttpLimits const& limits, HttpHandler const& handler, OnClosed const& on_closed)
      : stream_(std::move(socket)),
        loop_(std::move(loop)),
        limits_(limits),
        handler_(handler),
        on_closed_(on_closed) {}

  void read() {
    namespace http = boost::beast::http;
    parser_.emplace();
    parser_->header_limit(limits_.max_header_bytes);
    stream_.expires_after(limits_.timeout);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, std::size_t) {
                              self->guarded([&] { self->on_header(error); });
                            });
  }

 private:
  // What throws here is memory that ran out: this connection ends, the others go on.
  template <class Step>
  void guarded(Step step) noexcept {
    try {
      step();
    } catch (...) {
      close();
    }
  }

  void on_header(error_code error) {
    namespace http = boost::beast::http;
    if (error == http::error::header_limit) return refuse(431, "the request's header is too long");
    if (error == http::error::end_of_stream || error == http::error::partial_message)
      return close();
    if (error.category() == make_error_code(http::error::bad_method).category()) {
      return refuse(400, "not a request: " + error.message());
    }
    if (error) return close();
    auto const& request = parser_->get();
    is_head_ = request.method() == http::verb::head;
    keeps_alive_ = request.keep_alive();
    if (!is_head_ && request.method() != http::verb::get)
      return refuse(405, "this server only shows");
    if (parser_->chunked() || parser_->content_length().value_or(0) != 0) {
      return refuse(400, "requests here have no body");
    }
    if (limits_.checks_host && !is_own_host(as_text(request[http::field::host]))) {
      return refuse(403, "ask by address, or by a name that LiveServer::Options allow");
    }
    ask(as_text(request.target()));
  }

  void ask(std::string_view target) {
    HttpQuestion question;
    auto const mark = target.find('?');
    question.path = percent_decoded(target.substr(0, mark));
    if (mark != target.npos) question.query = target.substr(mark + 1);
    stream_.expires_never();  // the handler has limits of its own
    // A reply may come on any thread, and when the server is gone.
    handler_(question, [weak = weak_from_this(), loop = loop_](HttpAnswer answer) {
      auto const alive = loop.lock();
      if (!alive) return;
      boost::asio::post(*alive, [weak, answer = std::move(answer)]() mutable {
        if (auto const self = weak.lock()) self->guarded([&] { self->write(std::move(answer)); });
      });
    });
  }

  void refuse(unsigned status, std::string const& why) {
    keeps_alive_ = false;
    write({status, "text/plain; charset=utf-8", why + "\n"});
  }

  void write(HttpAnswer answer) {
    namespace http = boost::beast::http;
    response_ = Response(static_cast<http::status>(answer.status), 11);
    response_.set(http::field::content_type, answer.content_type);
    response_.set(http::field::cache_control, "no-store");
    response_.set("X-Content-Type-Options", "nosniff");
    response_.set("Referrer-Policy", "no-referrer");
    response_.set("Content-Security-Policy",
                  "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                  "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                  "frame-ancestors 'none'");
    if (answer.status == 405) response_.set(http::field::allow, "GET, HEAD");
    response_.keep_alive(keeps_alive_);
    response_.content_length(answer.body.size());
    if (!is_head_) response_.body() = std::move(answer.body);
    stream_.expires_after(limits_.timeout);
    serializer_.emplace(response_);
    auto const done = [self = shared_from_this()](error_code error, std::size_t) {
      self->guarded([&] { self->on_written(error); });
    };
    is_head_ ? http::async_write_header(stream_, *serializer_, done)
             : http::async_write(stream_, *serializer_, done);
  }

  void on_written(error_code error) {
    if (error || !keeps_alive_) return close();
    read();
  }

  void close() noexcept {
    error_code ignored;
    stream_.socket().shutdown(boost::asio::ip::tcp::socket::shutdown_both, ignored);
    stream_.close();
    on_closed_(shared_from_this());
  }

  static std::string_view as_text(boost::beast::string_view text) {
    return {text.data(), text.size()};
  }

  boost::beast::tcp_stream stream_;
  std::weak_ptr<boost::asio::io_context> loop_;
  HttpLimits const& limits_;
  HttpHandler const& handler_;
  OnClosed const& on_closed_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::empty_body>> parser_;
  Response response_;
  std::optional<boost::beast::http::response_serializer<boost::beast::http::string_body>>
      serializer_;
  bool is_head_ = false, keeps_alive_ = false;
};

}  // namespace distgrad::detail
