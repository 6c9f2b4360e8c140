#include <distgrad/transport/websocket_transport.hpp>

#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <distgrad/testing/transport_conformance.hpp>

namespace websocket_transport_tests {

namespace {

using namespace distgrad;
using namespace distgrad::testing;
using boost::asio::ip::tcp;
using boost::beast::websocket::close_code;

constexpr std::size_t most_payload_bytes = 1000;

/// Rank 0 is a transport with a thread; rank 1 is the test with a client of its own.
struct Victim {
  explicit Victim(milliseconds ping_interval = milliseconds(0))
      : transport({"127.0.0.1", 0, "", ping_interval}) {
    TransportSetup setup;
    setup.group = {{{"victim", {0}, {100}}, transport.local_endpoint()},
                   {{"attacker", {1}, {101}}, "ws://127.0.0.1:1/"}};
    setup.sink = &sink;
    setup.limits.max_payload_bytes = most_payload_bytes;
    transport.start(setup);
    thread = std::thread([this] {
      while (!stop) transport.run_until(Clock::now() + std::chrono::seconds(1));
    });
  }
  ~Victim() {
    stop = true;
    transport.abandon();  // a close would wait for the one who never connects
    thread.join();
  }
  error_code loss() {
    REQUIRE(sink.wait_for_losses(1));
    return sink.losses()[0].why;
  }

  RecordingSink sink;
  WebSocketTransport transport;
  std::atomic<bool> stop{false};
  std::thread thread;
};

/// A plain connection to the victim, with a bound on every wait.
class Client {
 public:
  explicit Client(Victim& victim) : socket_(io_) {
    auto const at = distgrad::detail::parse_websocket_url(victim.transport.local_endpoint())->at;
    socket_.connect({boost::asio::ip::make_address(at.host), at.port});
    timeval const bound{30, 0};
    ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
  }
  /// What comes after `bytes` until the other side ends the connection.
  std::string answer_to(std::string const& bytes) {
    error_code ignored;
    boost::asio::write(socket_, boost::asio::buffer(bytes), ignored);
    std::string all;
    char buffer[4096];
    for (;;) {
      auto const got = ::recv(socket_.native_handle(), buffer, sizeof buffer, 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return all;
      REQUIRE_MESSAGE(got > 0, "nobody ended the connection");
      all.append(buffer, static_cast<std::size_t>(got));
    }
  }

 protected:
  boost::asio::io_context io_;
  tcp::socket socket_;
};

/// One that said a valid hello in a WebSocket.
class Peer : Client {
 public:
  explicit Peer(Victim& victim) : Client(victim), stream_(std::move(socket_)) {
    stream_.set_option(boost::beast::websocket::stream_base::decorator([](auto& request) {
      request.set(boost::beast::http::field::sec_websocket_protocol, "distgrad");
    }));
    stream_.handshake("victim", "/any/path");
    stream_.binary(true);
    stream_.write(boost::asio::buffer(distgrad::detail::encode_hello({{1}, {101}, {0}, ""})));
    boost::beast::flat_buffer welcome;
    stream_.read(welcome);
    REQUIRE(welcome.size() > frame_header_bytes);
  }
  void send(FrameHeader const& header, bool is_binary = true) {
    stream_.binary(is_binary);
    stream_.write(boost::asio::buffer(encode_frame_header(header)));
  }

  /// Bytes that Beast would not write.
  void send_raw(std::string const& bytes) {
    boost::asio::write(stream_.next_layer(), boost::asio::buffer(bytes));
  }
  void close(close_code code) {
    error_code ignored;
    stream_.close(code, ignored);
  }
  void vanish() { stream_.next_layer().close(); }
  /// Reads to the end. @return the code with which the other side closed, 0 without one.
  std::uint16_t reason() {
    boost::beast::flat_buffer ignored;
    error_code ec;
    while (!ec) stream_.read(ignored, ec);
    return stream_.reason().code;
  }

 private:
  boost::beast::websocket::stream<tcp::socket> stream_;
};

std::string const upgrade =
    "GET / HTTP/1.1\r\nHost: victim\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

}  // namespace

TEST_CASE("a WebSocket endpoint is what was asked for, or where the socket listens") {
  auto const endpoint_of = [](std::string const& bind, std::string const& advertise) {
    return WebSocketTransport({bind, 0, advertise}).local_endpoint();
  };
  CHECK(endpoint_of("127.0.0.1", "").starts_with("ws://127.0.0.1:"));
  CHECK(endpoint_of("::1", "").starts_with("ws://[::1]:"));
  CHECK(endpoint_of("127.0.0.1", "ws://proxy:8080/w0") == "ws://proxy:8080/w0");
  CHECK_THROWS_WITH_AS(endpoint_of("127.0.0.1", "proxy:8080"), doctest::Contains("'proxy:8080'"),
                       Error);
}

TEST_CASE("who opens a worker's address in a browser reads what it is") {
  Victim victim;
  auto const page = Client(victim).answer_to("GET / HTTP/1.1\r\nHost: victim\r\n\r\n");
  CHECK(page.starts_with("HTTP/1.1 426 Upgrade Required\r\n"));
  CHECK(page.find("\r\nUpgrade: websocket\r\n") != std::string::npos);
  CHECK(page.find("\r\n\r\nThis is worker 'victim', rank 0 of 2") != std::string::npos);
  auto const head = Client(victim).answer_to("HEAD / HTTP/1.1\r\nHost: victim\r\n\r\n");
  CHECK(head.starts_with("HTTP/1.1 426 "));
  CHECK(head.ends_with("\r\n\r\n"));
}

TEST_CASE("a WebSocket of another program is refused, ours is taken") {
  Victim victim;
  CHECK(Client(victim).answer_to(upgrade + "\r\n").starts_with("HTTP/1.1 426 "));
  auto const other = upgrade + "Sec-WebSocket-Protocol: chat\r\n\r\n";
  CHECK(Client(victim).answer_to(other).starts_with("HTTP/1.1 426 "));
  Peer ours(victim);
  ours.send({FrameKind::call, 0, 0, {}, 0, 0});
  CHECK(victim.sink.wait_for_arrivals(1));
}

TEST_CASE("what is no HTTP is shown out, and disturbs nobody") {
  Victim victim;
  Peer peer(victim);
  std::vector<std::string> const probes{
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(600, 'r'),
      std::string(65536, '\xff'),
      "OPTIONS rtsp://victim RTSP/1.0\r\nCSeq: 1\r\n\r\n",
      "GET / HTTP/1.1\r\nX: " + std::string(20000, 'x'),
      upgrade + "Sec-WebSocket-Protocol: distgrad\r\n\r\nmore before the answer",
  };
  for (int round = 1; round <= 10; ++round) {
    for (auto const& probe : probes) CHECK(Client(victim).answer_to(probe) == "");
    peer.send({FrameKind::call, 0, 0, {}, 0, 0});
    REQUIRE(victim.sink.wait_for_arrivals(static_cast<std::size_t>(round)));
  }
  CHECK(victim.sink.losses().empty());
}

TEST_CASE("a peer that breaks the protocol is lost, and reads the reason in the close code") {
  auto const kind = FrameKind::call;
  auto const outcome = [](auto send) {
    Victim victim;
    Peer peer(victim);
    send(peer);
    auto const code = peer.reason();
    return std::pair(victim.loss(), code);
  };
  auto const is = [](auto const& got, auto const& why, close_code code) {
    CHECK(got.first == why);
    CHECK(got.second == static_cast<std::uint16_t>(code));
  };
  is(outcome([&](Peer& peer) {
       peer.send({kind, 0, 0, {}, 0, 0}, false);
     }),
     errc::bad_message, close_code::protocol_error);
  is(outcome([&](Peer& peer) {
       peer.send({kind, 0, 0, {}, 4, 0});
     }),  // without its metadata
     errc::bad_message, close_code::protocol_error);
  is(outcome([&](Peer& peer) {
       peer.send({kind, 0, 1, {}, 0, most_payload_bytes + 1});
     }),
     errc::frame_too_large, close_code::too_big);
  is(outcome([&](Peer& peer) {
       peer.send({FrameKind::hello, 0, 0, {}, 0, 0});
     }),
     errc::bad_message, close_code::protocol_error);
  is(outcome([&](Peer& peer) {
       peer.send_raw(std::string("\x82\x28", 2) + std::string(40, 'x'));
     }),  // not masked
     errc::bad_message, close_code::protocol_error);
  is(outcome([&](Peer& peer) {
       peer.send_raw("\x82\xff\x7f" + std::string(7, '\xff') + "mask");
     }),  // 2^63 - 1 bytes
     errc::frame_too_large, close_code::too_big);
}

TEST_CASE("the close code of a peer says why it went") {
  auto const loss_after = [](close_code code) {
    Victim victim;
    Peer(victim).close(code);
    return victim.loss();
  };
  CHECK(loss_after(close_code::normal) == errc::closed);
  CHECK(loss_after(close_code::protocol_error) == errc::bad_message);
  CHECK(loss_after(close_code::too_big) == errc::frame_too_large);
  CHECK(loss_after(close_code::going_away) == errc::peer_lost);
}

TEST_CASE("a peer that vanishes without a close frame is lost") {
  Victim victim;
  Peer(victim).vanish();
  CHECK(victim.loss() == errc::peer_lost);
}

TEST_CASE("a peer that falls silent is lost after three intervals") {
  Victim victim(milliseconds(20));
  Peer peer(victim);
  CHECK(victim.loss() == errc::peer_lost);
}

}  // namespace websocket_transport_tests
