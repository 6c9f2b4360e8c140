#pragma once
#include <memory>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <distgrad/core/error.hpp>
#include <distgrad/live/detail/http_session.hpp>

namespace distgrad::detail {

// A small HTTP/1.1 server with a thread of its own, so that it answers while everything else is
// busy. Connections beyond the limit wait in the kernel until another ends.
class HttpServer {
  using tcp = boost::asio::ip::tcp;

 public:
  // Throws Error invalid_argument or address_in_use.
  HttpServer(std::string const& address, std::uint16_t port, HttpLimits limits, HttpHandler handler)
      : limits_(limits), handler_(std::move(handler)), acceptor_(*loop_) {
    listen(address, port);
    on_closed_ = [this](std::shared_ptr<HttpSession> const& session) { forget(session); };
    accept();
    thread_ = std::thread([this] { run(); });
  }
  ~HttpServer() {
    loop_->stop();
    thread_.join();
    sessions_.clear();
  }
  HttpServer(HttpServer const&) = delete;
  HttpServer& operator=(HttpServer const&) = delete;

  tcp::endpoint endpoint() const { return endpoint_; }

 private:
  void listen(std::string const& address, std::uint16_t port) {
    boost::system::error_code error;
    tcp::endpoint const at(boost::asio::ip::make_address(address, error), port);
    auto const check = [&](errc code) {
      if (!error) return;
      throw Error(code, "the live server cannot listen on '" + address + "', port " +
                            std::to_string(port) + ": " + error.message());
    };
    check(errc::invalid_argument);
    acceptor_.open(at.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(at, error);
    if (!error) acceptor_.listen(boost::asio::socket_base::max_listen_connections, error);
    check(errc::address_in_use);
    endpoint_ = acceptor_.local_endpoint();
  }

  void run() noexcept {
    while (!loop_->stopped()) {
      try {
        loop_->run();
      } catch (...) {
        // Memory for a new connection ran out; those that are there go on.
      }
    }
  }

  void accept() {
    accepts_ = sessions_.size() < limits_.max_connections;
    if (!accepts_) return;
    acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      if (!error) {
        auto session =
            std::make_shared<HttpSession>(std::move(socket), loop_, limits_, handler_, on_closed_);
        sessions_.insert(session);
        session->read();
      }
      accept();
    });
  }
  void forget(std::shared_ptr<HttpSession> const& session) {
    if (sessions_.erase(session) != 0 && !accepts_) accept();
  }

  HttpLimits const limits_;
  HttpHandler const handler_;
  HttpSession::OnClosed on_closed_;
  // Shared with replies that are still to come.
  std::shared_ptr<boost::asio::io_context> loop_ = std::make_shared<boost::asio::io_context>(1);
  tcp::acceptor acceptor_;
  tcp::endpoint endpoint_;
  std::unordered_set<std::shared_ptr<HttpSession>> sessions_;
  bool accepts_ = false;
  std::thread thread_;
};

}  // namespace distgrad::detail
