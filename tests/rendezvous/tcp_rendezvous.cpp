#include <distgrad/rendezvous/detail/rendezvous_messages.hpp>
#include <distgrad/rendezvous/tcp_rendezvous.hpp>

#include <future>
#include <memory>
#include <thread>

#include <doctest/doctest.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

namespace tcp_rendezvous_tests {

namespace {

using namespace distgrad;
using boost::asio::ip::tcp;

constexpr std::chrono::seconds patience{30};

PeerAddress worker(std::uint32_t rank, std::string name = {}) {
  if (name.empty()) name = "w" + std::to_string(rank);
  return {{name, WorkerId{rank}, Incarnation{rank + 1000}},
          "endpoint of " + name,
          std::string("devices\0of ", 11) + name};
}

/// What an exchange ended with.
struct Outcome {
  std::vector<PeerAddress> group;
  error_code code;
  std::string text;
};

/// Each exchange of a group on a thread of its own; rank 0 chooses the port.
class Meeting {
 public:
  explicit Meeting(std::string master_address = "127.0.0.1") {
    options_.master_address = std::move(master_address);
  }
  ~Meeting() {
    for (auto& thread : threads_) thread.join();
  }

  TcpRendezvous::Options& options() { return options_; }

  /// Starts rank 0 and waits until it listens.
  std::future<Outcome> host(PeerAddress self, std::uint32_t world_size,
                            std::chrono::milliseconds timeout = patience) {
    std::promise<std::uint16_t> port;
    auto listening = port.get_future();
    auto options = options_;
    options.on_listening = [&](std::uint16_t p) { port.set_value(p); };
    auto outcome = launch(std::move(options), std::move(self), world_size, timeout);
    options_.master_port = listening.get();
    return outcome;
  }
  std::future<Outcome> join(PeerAddress self, std::uint32_t world_size,
                            std::chrono::milliseconds timeout = patience) {
    return launch(options_, std::move(self), world_size, timeout);
  }
  std::uint16_t port() const { return options_.master_port; }

 private:
  std::future<Outcome> launch(TcpRendezvous::Options options, PeerAddress self,
                              std::uint32_t world_size, std::chrono::milliseconds timeout) {
    std::promise<Outcome> promise;
    auto future = promise.get_future();
    threads_.emplace_back([=, promise = std::move(promise)]() mutable {
      Outcome outcome;
      try {
        outcome.group = TcpRendezvous(options).exchange(self, world_size, Deadline::after(timeout));
      } catch (Error const& error) {
        outcome.code = error.code();
        outcome.text = error.text();
      }
      promise.set_value(std::move(outcome));
    });
    return future;
  }

  TcpRendezvous::Options options_;
  std::vector<std::thread> threads_;
};

bool has(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

/// A connection that sends `bytes` and stays open until destroyed.
class Stranger {
 public:
  Stranger(std::uint16_t port, std::string const& bytes) : socket_(io_) {
    socket_.connect({boost::asio::ip::make_address("127.0.0.1"), port});
    error_code ignored;
    boost::asio::write(socket_, boost::asio::buffer(bytes), ignored);
  }
  void close() { socket_.close(); }

 private:
  boost::asio::io_context io_;
  tcp::socket socket_;
};

std::string registration_bytes(PeerAddress const& self, std::uint32_t world_size) {
  auto const frame = distgrad::detail::encode_registration({self, world_size}, "");
  return {reinterpret_cast<char const*>(frame.data()), frame.size()};
}

}  // namespace

TEST_CASE("every worker gets the same group, in the order of ranks") {
  for (std::string const& address : std::vector<std::string>{"127.0.0.1", "::1", "localhost"}) {
    CAPTURE(address);
    Meeting meeting(address);
    std::vector<std::future<Outcome>> outcomes;
    outcomes.push_back(meeting.host(worker(0), 4));
    for (std::uint32_t rank : {3u, 1u, 2u}) outcomes.push_back(meeting.join(worker(rank), 4));
    std::vector<PeerAddress> const expected{worker(0), worker(1), worker(2), worker(3)};
    for (auto& outcome : outcomes) {
      auto const got = outcome.get();
      CHECK(got.text == "");
      CHECK(got.group == expected);
    }
  }
}

TEST_CASE("a group of one needs no port") {
  TcpRendezvous alone({});
  CHECK(alone.exchange(worker(0), 1, Deadline::after(patience)) == std::vector{worker(0)});
}

TEST_CASE("thirty-three workers that all join at once form one group") {
  Meeting meeting;
  std::vector<std::future<Outcome>> outcomes;
  outcomes.push_back(meeting.host(worker(0), 33));
  for (std::uint32_t rank = 1; rank < 33; ++rank) {
    outcomes.push_back(meeting.join(worker(rank), 33));
  }
  for (auto& outcome : outcomes) CHECK(outcome.get().group.size() == 33);
}

TEST_CASE("a worker that starts before rank 0 tries again until it listens") {
  // A port that was free a moment ago; rank 0 takes it after the worker's first attempts failed.
  boost::asio::io_context io;
  tcp::acceptor probe(io, {boost::asio::ip::make_address("127.0.0.1"), 0});
  auto const port = probe.local_endpoint().port();
  probe.close();
  Meeting meeting;
  meeting.options().master_port = port;
  auto early = meeting.join(worker(1), 2);
  CHECK(early.wait_for(milliseconds(50)) == std::future_status::timeout);
  auto host = meeting.host(worker(0), 2);
  CHECK(early.get().group.size() == 2);
  CHECK(host.get().group.size() == 2);
}

TEST_CASE("two workers of the same name: every worker is told who clashes with whom") {
  Meeting meeting;
  std::vector<std::future<Outcome>> outcomes;
  outcomes.push_back(meeting.host(worker(0, "even"), 4));
  outcomes.push_back(meeting.join(worker(1, "odd"), 4));
  outcomes.push_back(meeting.join(worker(2, "even"), 4));
  outcomes.push_back(meeting.join(worker(3, "three"), 4));
  auto const first = outcomes[0].get();
  CHECK(first.code == errc::duplicate_name);
  CHECK(has(first.text, "'even' (rank 0"));
  CHECK(has(first.text, "'even' (rank 2"));
  for (int i : {1, 2, 3}) {
    auto const got = outcomes[i].get();
    CHECK(got.code == errc::duplicate_name);
    CHECK(got.text == first.text);
  }
}

TEST_CASE("the same rank twice, a wrong world size, a bad name, a rank outside") {
  struct Case {
    PeerAddress culprit;
    std::uint32_t world_size;
    errc expected;
    std::string part;
  };
  for (auto const& c : {Case{worker(1, "other"), 3, errc::duplicate_rank, "rank 1"},
                        Case{worker(2), 4, errc::world_size_mismatch, "world size of 4"},
                        Case{worker(2, "a b"), 3, errc::invalid_name, "'a b'"},
                        Case{worker(7), 3, errc::invalid_argument, "rank 7"}}) {
    CAPTURE(c.part);
    Meeting meeting;
    auto host = meeting.host(worker(0), 3);
    auto innocent = meeting.join(worker(1), 3);
    auto culprit = meeting.join(c.culprit, c.world_size);
    for (auto* outcome : {&host, &innocent, &culprit}) {
      auto const got = outcome->get();
      CHECK(got.code == c.expected);
      CHECK(has(got.text, c.part));
    }
  }
}

TEST_CASE("a worker with another secret is told so, and does not disturb the group") {
  Meeting meeting;
  meeting.options().job_secret = "right";
  auto host = meeting.host(worker(0), 2);
  meeting.options().job_secret = "wrong";
  CHECK(meeting.join(worker(1), 2).get().code == errc::bad_secret);
  meeting.options().job_secret = "right";
  CHECK(meeting.join(worker(1), 2).get().group.size() == 2);
  CHECK(host.get().group.size() == 2);
}

TEST_CASE("a busy port is an error that names it") {
  boost::asio::io_context io;
  tcp::acceptor holder(io, {boost::asio::ip::make_address("127.0.0.1"), 0});
  TcpRendezvous::Options options;
  options.master_port = holder.local_endpoint().port();
  try {
    TcpRendezvous(options).exchange(worker(0), 2, Deadline::after(patience));
    FAIL("no error");
  } catch (Error const& error) {
    CHECK(error.code() == errc::address_in_use);
    CHECK(has(error.text(), "127.0.0.1:" + std::to_string(options.master_port)));
    CHECK(has(error.text(), "MASTER_PORT"));
  }
}

TEST_CASE("rank 0 names the ranks that are missing at its deadline, to those who came, too") {
  Meeting meeting;
  auto host = meeting.host(worker(0), 4, milliseconds(300));
  auto came = meeting.join(worker(2), 4);
  for (auto* outcome : {&host, &came}) {
    auto const got = outcome->get();
    CHECK(got.code == errc::timeout);
    CHECK(has(got.text, "ranks 1 and 3 of 4"));
  }
}

TEST_CASE("a worker that finds nobody says where it tried, how long and what to do") {
  boost::asio::io_context io;
  tcp::acceptor probe(io, {boost::asio::ip::make_address("127.0.0.1"), 0});
  auto const port = probe.local_endpoint().port();
  probe.close();
  TcpRendezvous::Options options;
  options.master_port = port;
  try {
    TcpRendezvous(options).exchange(worker(1, "lonely"), 2, Deadline::after(milliseconds(2000)));
    FAIL("no error");
  } catch (Error const& error) {
    CHECK(error.code() == errc::unreachable);
    auto const where = "127.0.0.1:" + std::to_string(port);
    for (std::string const& part :
         {std::string("'lonely' (rank 1)"), where, std::string("tried for "),
          std::string("MASTER_ADDR"), std::string("refused")}) {
      CAPTURE(error.text());
      CAPTURE(part);
      CHECK(has(error.text(), part));
    }
  }
}

TEST_CASE("a worker whose rank 0 never completes the group stops at its own deadline") {
  Meeting meeting;
  auto host = meeting.host(worker(0), 3, milliseconds(1500));
  auto const got = meeting.join(worker(1), 3, milliseconds(200)).get();
  CHECK(got.code == errc::timeout);
  CHECK(has(got.text, "rank 0 answers there"));
  CHECK(host.get().code == errc::timeout);
}

TEST_CASE("a worker that died before the group was complete may be started again") {
  Meeting meeting;
  auto host = meeting.host(worker(0), 3);
  Stranger dead(meeting.port(), registration_bytes(worker(1), 3));
  dead.close();
  auto again = meeting.join(worker(1), 3);
  auto last = meeting.join(worker(2), 3);
  CHECK(again.get().group.size() == 3);
  CHECK(last.get().group.size() == 3);
  CHECK(host.get().group.size() == 3);
}

TEST_CASE("port scanners and garbage neither stop nor delay the group") {
  Meeting meeting;
  auto host = meeting.host(worker(0), 2);
  std::vector<std::unique_ptr<Stranger>> strangers;
  FrameHeader huge{FrameKind::hello, 0, 1u << 20, {}, 1u << 30, 1u << 30};
  auto const header = encode_frame_header(huge);
  std::string const huge_bytes(reinterpret_cast<char const*>(header.data()), header.size());
  for (int i = 0; i < 100; ++i) {
    for (std::string const& probe :
         {std::string("GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n\r\n"),
          std::string("\x16\x03\x01\x02"), std::string(5000, '\xff'), std::string("DRGD"),
          std::string(), huge_bytes}) {
      strangers.push_back(std::make_unique<Stranger>(meeting.port(), probe));
    }
  }
  CHECK(meeting.join(worker(1), 2).get().group.size() == 2);
  CHECK(host.get().group.size() == 2);
}

TEST_CASE("a worker that says too much of its devices is told so") {
  auto self = worker(0);
  self.devices = std::string(60'000, 'x');
  CHECK_THROWS_AS(TcpRendezvous({}).exchange(self, 2, Deadline::never()), Error);
}

TEST_CASE("a world size of zero and a missing port are errors of the caller") {
  TcpRendezvous rendezvous({});
  CHECK_THROWS_AS(rendezvous.exchange(worker(0), 0, Deadline::never()), Error);
  CHECK_THROWS_AS(rendezvous.exchange(worker(1), 2, Deadline::never()), Error);
}

}  // namespace tcp_rendezvous_tests
