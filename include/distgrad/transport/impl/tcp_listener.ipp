#pragma once
#include <algorithm>
#include <utility>

#include <boost/asio/ip/udp.hpp>
#include <boost/asio/ip/v6_only.hpp>

#include <distgrad/transport/detail/tcp_listener.hpp>

namespace distgrad::detail {

[[noreturn]] inline void throw_cannot_listen(std::string const& address, std::uint16_t port,
                                             error_code ec) {
  auto const where = to_string(HostPort{address.empty() ? "*" : address, port});
  auto const text = "cannot listen on " + where + ": " + ec.message();
  if (ec == boost::system::errc::address_in_use) {
    throw_error(errc::address_in_use,
                text + "; another program holds the port: end it, or use port 0 to get a free one");
  }
  throw_error(errc::unreachable, text + "; the bind address must be one of this machine");
}

inline boost::asio::ip::tcp::endpoint resolve_bind_address(boost::asio::io_context& io,
                                                           std::string const& address,
                                                           std::uint16_t port) {
  error_code ec;
  auto const literal = boost::asio::ip::make_address(address, ec);
  if (!ec) return {literal, port};
  boost::asio::ip::tcp::resolver resolver(io);
  auto const found = resolver.resolve(address, std::to_string(port), ec);
  if (ec || found.empty()) {
    throw_error(errc::invalid_argument, "bind address '" + address +
                                            "' is neither an IP address "
                                            "nor a name that resolves: " +
                                            ec.message());
  }
  return found.begin()->endpoint();
}

DISTGRAD_DECL TcpListener::TcpListener(IoLoop& loop, ConnectionFactory& connections,
                                       std::string const& bind_address, std::uint16_t port)
    : loop_(loop), connections_(connections), acceptor_(loop.io), pause_(loop.io) {
  using boost::asio::ip::tcp;
  error_code ec;
  if (!bind_address.empty()) {
    ec = open(resolve_bind_address(loop.io, bind_address, port), false);
  } else {
    ec = open({tcp::v6(), port}, true);
    if (ec && ec != boost::system::errc::address_in_use) {
      ec = open({tcp::v4(), port}, false);  // a host without IPv6
    }
  }
  if (ec) throw_cannot_listen(bind_address, port, ec);
}

DISTGRAD_DECL error_code TcpListener::open(boost::asio::ip::tcp::endpoint const& at,
                                           bool dual_stack) {
  error_code ec;
  acceptor_.close(ec);
  acceptor_.open(at.protocol(), ec);
  if (!ec) acceptor_.set_option(boost::asio::socket_base::reuse_address(true), ec);
  if (!ec && dual_stack) acceptor_.set_option(boost::asio::ip::v6_only(false), ec);
  if (!ec) acceptor_.bind(at, ec);
  if (!ec) acceptor_.listen(boost::asio::socket_base::max_listen_connections, ec);
  if (!ec) local_ = acceptor_.local_endpoint(ec);
  return ec;
}

DISTGRAD_DECL void TcpListener::start(OnPeer on_peer) {
  on_peer_ = std::move(on_peer);
  accept();
}

DISTGRAD_DECL void TcpListener::close() noexcept {
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  for (auto const& stranger : strangers_) stranger->close();
  strangers_.clear();
}

DISTGRAD_DECL void TcpListener::accept() {
  acceptor_.async_accept([this](error_code ec, Socket socket) {
    if (ec == boost::asio::error::operation_aborted) return;
    if (!ec) {
      greet(std::move(socket));
      return accept();
    }
    // Out of descriptors or memory: retrying at once would spin.
    pause_.expires_after(std::chrono::milliseconds(100));
    is_pausing_ = true;
    pause_.async_wait([this](error_code stopped) {
      is_pausing_ = false;
      if (!stopped) accept();
    });
  });
}

DISTGRAD_DECL void TcpListener::greet(Socket socket) {
  if (strangers_.size() >= max_strangers) {
    strangers_.front()->close();
    strangers_.pop_front();
  }
  auto const channel = connections_.make_channel(loop_, std::move(socket));
  strangers_.push_back(channel);
  channel->limit(handshake_timeout);
  channel->accept([this, channel = channel.get()](error_code ec) {
    ec ? dismiss(*channel) : expect_hello(*channel);
  });
}

DISTGRAD_DECL void TcpListener::expect_hello(HandshakeChannel& channel) {
  channel.receive(
      [this, &channel](error_code ec, FrameHeader const& header, std::vector<std::byte> metadata) {
        ec ? dismiss(channel) : judge(channel, header, metadata);
      });
}

DISTGRAD_DECL void TcpListener::judge(HandshakeChannel& channel, FrameHeader const& header,
                                      std::vector<std::byte> const& metadata) {
  auto const hello = decode_hello(header, metadata);
  auto const verdict =
      hello ? judge_hello(*hello, loop_.setup) : make_error_code(errc::bad_message);
  auto const& self = loop_.setup.group[loop_.setup.self.value].info;
  auto answer = encode_welcome({self.id, self.incarnation, verdict});
  auto const from = hello ? hello->from : WorkerId{};
  channel.send(std::move(answer), [this, &channel, from, verdict](error_code ec) {
    if (ec || verdict) return dismiss(channel);
    forget(channel);
    on_peer_(from, channel);
  });
}

DISTGRAD_DECL void TcpListener::dismiss(HandshakeChannel& channel) {
  channel.close();
  forget(channel);
}

DISTGRAD_DECL void TcpListener::forget(HandshakeChannel const& channel) {
  strangers_.remove_if([&](auto const& stranger) { return stranger.get() == &channel; });
}

DISTGRAD_DECL std::string outgoing_address(boost::asio::io_context& io) {
  using boost::asio::ip::udp;
  for (char const* far : {"192.0.2.1", "2001:db8::1"}) {  // addresses reserved for documentation
    error_code ec;
    udp::endpoint const there(boost::asio::ip::make_address(far), 9);
    udp::socket socket(io);
    socket.open(there.protocol(), ec);
    if (!ec) socket.connect(there, ec);
    if (ec) continue;
    auto const here = socket.local_endpoint(ec);
    if (!ec && !here.address().is_unspecified()) return here.address().to_string();
  }
  return "127.0.0.1";
}

}  // namespace distgrad::detail
