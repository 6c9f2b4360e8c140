#include <distgrad/transport/tcp_transport.hpp>

#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <distgrad/testing/transport_conformance.hpp>

namespace tcp_transport_tests {

namespace {

using namespace distgrad;
using namespace distgrad::testing;
using boost::asio::ip::tcp;

struct Rig {
  using Transport = TcpTransport;
  static std::vector<std::unique_ptr<Transport>> make(std::size_t count) {
    std::vector<std::unique_ptr<Transport>> all(count);
    for (auto& one : all) one = std::make_unique<Transport>(Transport::Options{"127.0.0.1", 0, ""});
    return all;
  }
  static void abandon(Transport& transport) { transport.abandon(); }
};

std::string bytes_of(std::vector<std::byte> const& frame) {
  return {reinterpret_cast<char const*>(frame.data()), frame.size()};
}

std::string header_of(FrameHeader const& header) {
  auto const bytes = encode_frame_header(header);
  return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

/// A plain connection to a transport, with a bound on every wait.
class RawClient {
 public:
  explicit RawClient(std::string const& endpoint) : socket_(io_) {
    auto const at = *parse_host_port(endpoint);
    socket_.connect({boost::asio::ip::make_address(at.host), at.port});
    timeval const bound{30, 0};
    ::setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
  }
  void send(std::string const& bytes) {
    error_code ignored;
    boost::asio::write(socket_, boost::asio::buffer(bytes), ignored);
  }
  /// Reads until the other side ends the connection. @return whether it did in time.
  bool is_ended_by_peer() {
    char buffer[4096];
    for (;;) {
      auto const got = ::recv(socket_.native_handle(), buffer, sizeof buffer, 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
      if (got < 0) return false;
    }
  }
  distgrad::detail::Welcome welcome() {
    FrameHeaderBytes bytes;
    boost::asio::read(socket_, boost::asio::buffer(bytes));
    FrameHeader header;
    REQUIRE(!decode_frame_header(bytes, distgrad::detail::handshake_limits, header));
    std::vector<std::byte> metadata(header.metadata_bytes);
    boost::asio::read(socket_, boost::asio::buffer(metadata));
    auto const welcome = distgrad::detail::decode_welcome(header, metadata);
    REQUIRE(welcome);
    return *welcome;
  }
  tcp::socket& socket() { return socket_; }

 private:
  boost::asio::io_context io_;
  tcp::socket socket_;
};

/// Rank 0 is a transport with a thread; rank 1 is the test with a raw connection.
struct Victim {
  explicit Victim(FrameLimits const& limits = {},
                  milliseconds connect_timeout = milliseconds(30000))
      : transport({"127.0.0.1", 0, ""}) {
    TransportSetup setup;
    setup.group = {{{"victim", {0}, {100}}, transport.local_endpoint()},
                   {{"attacker", {1}, {101}}, "127.0.0.1:1"}};
    setup.sink = &sink;
    setup.limits = limits;
    setup.job_secret = "a secret";
    setup.connect_timeout = connect_timeout;
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

  std::unique_ptr<RawClient> connect(std::string const& secret = "a secret") {
    auto client = std::make_unique<RawClient>(transport.local_endpoint());
    client->send(bytes_of(distgrad::detail::encode_hello({{1}, {101}, {0}, secret})));
    return client;
  }

  RecordingSink sink;
  TcpTransport transport;
  std::atomic<bool> stop{false};
  std::thread thread;
};

std::vector<std::string> const probes{
    "GET / HTTP/1.1\r\nHost: victim\r\nUser-Agent: scanner\r\n\r\n",
    std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(600, 'r'),
    "OPTIONS rtsp://victim RTSP/1.0\r\nCSeq: 1\r\n\r\n0123456789",
    std::string("\x00\x00\x00\x85\xffSMBr", 9) + std::string(128, '\0'),
    std::string(65536, '\xff'),
    header_of({FrameKind::hello, 0, 0, {}, std::uint64_t{1} << 40, 0}),
    header_of({FrameKind::hello, 0, 0, {}, 100, std::uint64_t{1} << 50}),
    header_of({FrameKind::hello, 0, ~0u, {}, 100, 0}),
    header_of({FrameKind::call, 0, 0, {}, 4, 0}) + "abcd",
    header_of({FrameKind::hello, 0, 0, {}, 4, 0}) + "abcd",
};

}  // namespace

TEST_CASE("the advertised endpoint is what was asked for, or where the socket listens") {
  auto const host_of = [](TcpTransport::Options const& options) {
    auto const at = parse_host_port(TcpTransport(options).local_endpoint());
    REQUIRE(at);
    CHECK(at->port != 0);
    return at->host;
  };
  CHECK(host_of({"127.0.0.1", 0, ""}) == "127.0.0.1");
  CHECK(host_of({"127.0.0.2", 0, ""}) == "127.0.0.2");
  CHECK(host_of({"::1", 0, ""}) == "::1");
  CHECK(host_of({"localhost", 0, "outside.example"}) == "outside.example");
  CHECK(host_of({"", 0, "outside.example"}) == "outside.example");
  CHECK(host_of({"", 0, ""}) != "");
}

TEST_CASE("a transport bound to one address is not reachable through another") {
  TcpTransport transport({"127.0.0.1", 0, ""});
  auto at = *parse_host_port(transport.local_endpoint());
  at.host = "127.0.0.2";
  CHECK_THROWS(RawClient(to_string(at)));
}

TEST_CASE("a transport on all interfaces is reachable by IPv4 and IPv6") {
  TcpTransport transport;
  auto at = *parse_host_port(transport.local_endpoint());
  for (auto const* host : {"127.0.0.1", "::1"}) {
    at.host = host;
    CHECK_NOTHROW(RawClient(to_string(at)));
  }
}

TEST_CASE("a busy port, a foreign address and nonsense are errors that name them") {
  TcpTransport holder({"127.0.0.1", 0, ""});
  auto const port = parse_host_port(holder.local_endpoint())->port;
  auto const error_of = [](TcpTransport::Options const& options) {
    try {
      TcpTransport transport(options);
    } catch (Error const& error) {
      return std::pair(static_cast<errc>(error.code().value()), error.text());
    }
    return std::pair(errc{}, std::string());
  };
  auto const busy = error_of({"127.0.0.1", port, ""});
  CHECK(busy.first == errc::address_in_use);
  CHECK(busy.second.find("127.0.0.1:" + std::to_string(port)) != std::string::npos);
  CHECK(error_of({"", port, ""}).first == errc::address_in_use);
  auto const foreign = error_of({"192.0.2.1", 0, ""});
  CHECK(foreign.first == errc::unreachable);
  CHECK(foreign.second.find("192.0.2.1") != std::string::npos);
  CHECK(error_of({"no such host", 0, ""}).first == errc::invalid_argument);
}

TEST_CASE("a secret that is too long to travel is an error at start") {
  TcpTransport transport({"127.0.0.1", 0, ""});
  RecordingSink sink;
  TransportSetup setup;
  setup.sink = &sink;
  setup.group = {{{"a", {0}, {1}}, transport.local_endpoint()}};
  setup.job_secret = std::string(max_job_secret_bytes + 1, 's');
  CHECK_THROWS_AS(transport.start(setup), Error);
}

TEST_CASE("scanners and garbage are shown out at once, and disturb nobody") {
  TransportGroup<Rig> group(2);
  group.start_and_run();
  auto const endpoint = group[0].local_endpoint();
  for (int round = 0; round < 20; ++round) {
    for (auto const& probe : probes) {
      RawClient client(endpoint);
      client.send(probe);
      CHECK(client.is_ended_by_peer());
    }
    group[1].async_send({0}, numbered_message(round), nullptr);
    REQUIRE(group.sink(0).wait_for_arrivals(round + 1));
  }
  CHECK(group.sink(0).losses().empty());
}

TEST_CASE("more silent connections than there are places for end, oldest first") {
  Victim victim;
  auto const before = Clock::now();
  std::vector<std::unique_ptr<RawClient>> silent;
  for (std::size_t i = 0; i < 3 * distgrad::detail::max_strangers; ++i) {
    silent.push_back(std::make_unique<RawClient>(victim.transport.local_endpoint()));
    silent.back()->send("D");
  }
  // A worker gets in although every place is taken.
  auto const peer = victim.connect();
  CHECK(!peer->welcome().status);
  CHECK(silent[0]->is_ended_by_peer());
  // Because of its place, not because its time was up.
  CHECK(Clock::now() - before < distgrad::detail::handshake_timeout);
}

TEST_CASE("a connection that says its hello byte by byte too slowly is ended") {
  Victim victim;
  RawClient slow(victim.transport.local_endpoint());
  slow.send("DGRD");
  auto const before = Clock::now();
  CHECK(slow.is_ended_by_peer());
  CHECK(Clock::now() - before < 3 * distgrad::detail::handshake_timeout);
}

TEST_CASE("a hello in single bytes is as good as one in a piece") {
  Victim victim;
  RawClient client(victim.transport.local_endpoint());
  for (char c : bytes_of(distgrad::detail::encode_hello({{1}, {101}, {0}, "a secret"}))) {
    client.send(std::string(1, c));
  }
  CHECK(!client.welcome().status);
}

TEST_CASE("who does not know the secret, or is nobody, is declined; the right one still gets in") {
  Victim victim;
  CHECK(victim.connect("another")->welcome().status == errc::bad_secret);
  CHECK(victim.connect("")->welcome().status == errc::bad_secret);
  RawClient stranger(victim.transport.local_endpoint());
  stranger.send(bytes_of(distgrad::detail::encode_hello({{7}, {101}, {0}, "a secret"})));
  CHECK(stranger.welcome().status == errc::unknown_worker);
  RawClient earlier_life(victim.transport.local_endpoint());
  earlier_life.send(bytes_of(distgrad::detail::encode_hello({{1}, {99}, {0}, "a secret"})));
  CHECK(earlier_life.welcome().status == errc::refused);
  CHECK(earlier_life.is_ended_by_peer());
  auto const peer = victim.connect();
  CHECK(!peer->welcome().status);
  peer->send(header_of({FrameKind::call, 0, 0, {5}, 0, 0}));
  REQUIRE(victim.sink.wait_for_arrivals(1));
  CHECK(victim.sink.losses().empty());
}

TEST_CASE("a second connection of the same worker does not replace the first") {
  Victim victim;
  auto const peer = victim.connect();
  peer->welcome();
  peer->send(header_of({FrameKind::call, 0, 0, {1}, 0, 0}));
  REQUIRE(victim.sink.wait_for_arrivals(1));
  auto const twin = victim.connect();
  CHECK(twin->is_ended_by_peer());
  peer->send(header_of({FrameKind::call, 0, 0, {2}, 0, 0}));
  CHECK(victim.sink.wait_for_arrivals(2));
  CHECK(victim.sink.losses().empty());
}

TEST_CASE("a peer that breaks the protocol is lost with the reason, and its connection ends") {
  struct Case {
    std::string bytes;
    errc expected;
  };
  std::string const short_table =
      header_of({FrameKind::call, 0, 1, {}, 0, 100}) + std::string("\x01\0\0\0\0\0\0\0", 8);
  for (auto const& c :
       {Case{"nonsense" + std::string(100, 'x'), errc::bad_magic},
        Case{header_of({FrameKind::call, 0, 0, {}, 1001, 0}), errc::frame_too_large},
        Case{header_of({FrameKind::call, 0, 1, {}, 0, ~0ull}), errc::frame_too_large},
        Case{header_of({FrameKind::call, 0, ~0u, {}, 0, 0}), errc::frame_too_large},
        Case{short_table, errc::bad_message},
        Case{header_of({FrameKind::hello, 0, 0, {}, 0, 0}), errc::bad_message}}) {
    Victim victim(FrameLimits{1000, 1000, 10});
    auto const peer = victim.connect();
    peer->welcome();
    peer->send(header_of({FrameKind::call, 0, 0, {1}, 0, 0}) + c.bytes);
    REQUIRE(victim.sink.wait_for_losses(1));
    CHECK(victim.sink.losses()[0].why == c.expected);
    CHECK(victim.sink.arrivals().size() == 1);
    CHECK(peer->is_ended_by_peer());
  }
}

TEST_CASE("a peer that vanishes in the middle of a message is lost, and so is the message") {
  for (bool reset : {false, true}) {
    Victim victim;
    auto const peer = victim.connect();
    peer->welcome();
    peer->send(header_of({FrameKind::call, 0, 1, {}, 0, 100}) +
               std::string("\x64\0\0\0\0\0\0\0", 8) + "half");
    if (reset) peer->socket().set_option(boost::asio::socket_base::linger(true, 0));
    peer->socket().close();
    REQUIRE(victim.sink.wait_for_losses(1));
    CHECK(victim.sink.losses()[0].why == errc::peer_lost);
    CHECK(victim.sink.arrivals().empty());
  }
}

TEST_CASE("a peer that never connects is lost after the time for connecting; sends to it fail") {
  Victim victim({}, milliseconds(100));
  Completions completions;
  victim.transport.async_send({1}, numbered_message(1), completions.next());
  REQUIRE(victim.sink.wait_for_losses(1));
  CHECK(victim.sink.losses()[0].why == errc::unreachable);
  REQUIRE(completions.wait());
  CHECK(completions.results()[0] == errc::unreachable);
}

TEST_CASE("a peer that cannot be reached is lost after the time for connecting") {
  for (std::string const& endpoint : std::vector<std::string>{"127.0.0.1:1", "no endpoint"}) {
    TcpTransport transport({"127.0.0.1", 0, ""});
    RecordingSink sink;
    TransportSetup setup;
    setup.self = {1};
    setup.group = {{{"gone", {0}, {1}}, endpoint},
                   {{"here", {1}, {1}}, transport.local_endpoint()}};
    setup.sink = &sink;
    setup.connect_timeout = milliseconds(100);
    transport.start(setup);
    REQUIRE(eventually([&] {
      transport.run_until(Clock::now() + milliseconds(100));
      return !sink.losses().empty();
    }));
    CHECK(sink.losses()[0].why == errc::unreachable);
  }
}

TEST_CASE("a worker with another secret is told why its connections fail") {
  Victim victim;
  TcpTransport transport({"127.0.0.1", 0, ""});
  RecordingSink sink;
  TransportSetup setup;
  setup.self = {1};
  setup.group = {{{"victim", {0}, {100}}, victim.transport.local_endpoint()},
                 {{"attacker", {1}, {101}}, transport.local_endpoint()}};
  setup.sink = &sink;
  setup.job_secret = "guess";
  transport.start(setup);
  REQUIRE(eventually([&] {
    transport.run_until(Clock::now() + milliseconds(100));
    return !sink.losses().empty();
  }));
  CHECK(sink.losses()[0].why == errc::bad_secret);
}

TEST_CASE("a close does not wait long for a peer that does not read") {
  Victim victim;
  auto const peer = victim.connect();
  peer->welcome();
  Completions completions;
  for (std::uint64_t i = 0; i < 30; ++i) {
    victim.transport.async_send({1}, numbered_message(i, "x", {patterned_buffer(1 << 20, 1)}),
                                completions.next());
  }
  auto const before = Clock::now();
  victim.transport.close();
  CHECK(Clock::now() - before < std::chrono::seconds(15));
  REQUIRE(completions.wait());
  CHECK(completions.is_each_called_once());
  CHECK(completions.results().back() == errc::closed);
}

TEST_CASE("a close tells those who are connected at once, and those who come within five seconds") {
  TransportGroup<Rig> group(3);
  group.start();
  group.run(0);
  group.run(1);
  group[1].async_send({0}, numbered_message(1), nullptr);
  REQUIRE(group.sink(0).wait_for_arrivals(1));
  std::thread closing([&] { group[0].close(); });
  check_only_loss(group.sink(1), 0, errc::closed);
  group.run(2);
  check_only_loss(group.sink(2), 0, errc::closed);
  closing.join();
}

TEST_CASE("many workers connect with each other") {
  constexpr std::size_t count = 24;
  TransportGroup<Rig> group(count);
  group.start_and_run();
  for (std::uint32_t from = 0; from < count; ++from) {
    for (std::uint32_t to = 0; to < count; ++to) {
      group[from].async_send({to}, numbered_message(from), nullptr);
    }
  }
  for (std::size_t i = 0; i < count; ++i) CHECK(group.sink(i).wait_for_arrivals(count));
}

}  // namespace tcp_transport_tests
