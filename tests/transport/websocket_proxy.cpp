// Workers that know each other only through nginx, each by a path of its own.
#include <distgrad/transport/websocket_transport.hpp>

#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <distgrad/testing/transport_conformance.hpp>

namespace websocket_proxy_tests {

namespace {

using namespace distgrad;
using namespace distgrad::testing;
using boost::asio::ip::tcp;

constexpr char const* nginx = "/usr/sbin/nginx";

/// Ports that nobody held a moment ago. Somebody may take one: who uses them tries again.
template <std::size_t N>
std::array<std::uint16_t, N> free_ports() {
  boost::asio::io_context io;
  std::vector<tcp::acceptor> holders;
  std::array<std::uint16_t, N> ports;
  for (auto& port : ports) {
    holders.emplace_back(io, tcp::endpoint(boost::asio::ip::make_address("127.0.0.1"), 0));
    port = holders.back().local_endpoint().port();
  }
  return ports;
}

/// nginx in the foreground, with all its files in a folder of its own.
class Proxy {
 public:
  Proxy(std::uint16_t port, std::vector<std::uint16_t> const& workers) {
    std::string folder = std::filesystem::temp_directory_path() / "distgrad-nginx-XXXXXX";
    REQUIRE(::mkdtemp(folder.data()));
    folder_ = folder;
    std::ofstream(folder_ / "nginx.conf") << configuration(port, workers);
    auto const where = folder + "/", file = folder + "/nginx.conf", log = folder + "/log";
    std::vector<char const*> words{nginx,        "-p", where.c_str(), "-c",
                                   file.c_str(), "-e", log.c_str(),   nullptr};
    REQUIRE(::posix_spawn(&pid_, nginx, nullptr, nullptr, const_cast<char**>(words.data()),
                          environ) == 0);
  }
  ~Proxy() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }

  /// Waits until it listens. @return false if it ended instead: the port was taken.
  bool is_up() {
    bool listens = false;
    REQUIRE(eventually([&] {
      if (::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
      listens = std::filesystem::exists(folder_ / "pid");  // written once it has the port
      return listens || pid_ == 0;
    }));
    return listens && pid_ != 0;
  }

 private:
  static std::string configuration(std::uint16_t port, std::vector<std::uint16_t> const& workers) {
    std::string text =
        "daemon off; master_process off; pid pid; events {}\n"
        "http { access_log off; client_body_temp_path body; proxy_temp_path proxy;\n"
        "fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n"
        "server { listen 127.0.0.1:" +
        std::to_string(port) +
        ";\n"
        "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;\n"
        "proxy_set_header Connection upgrade;\n";
    for (std::size_t rank = 0; rank < workers.size(); ++rank) {
      text += "location /w" + std::to_string(rank) +
              " { proxy_pass http://127.0.0.1:" + std::to_string(workers[rank]) + "; }\n";
    }
    return text + "} }\n";
  }

  std::filesystem::path folder_;
  pid_t pid_ = 0;
};

struct ProxiedRig {
  using Transport = WebSocketTransport;
  static std::vector<std::unique_ptr<Transport>> make(std::size_t count) {
    for (;;) {
      try {
        auto const ports = free_ports<3>();
        proxy = std::make_unique<Proxy>(ports[0], std::vector(ports.begin() + 1, ports.end()));
        std::vector<std::unique_ptr<Transport>> all;
        for (std::size_t rank = 0; rank < count; ++rank) {
          all.push_back(std::make_unique<Transport>(Transport::Options{
              "127.0.0.1", ports[rank + 1],
              "ws://127.0.0.1:" + std::to_string(ports[0]) + "/w" + std::to_string(rank)}));
        }
        if (proxy->is_up()) return all;
      } catch (Error const& error) {
        REQUIRE(error.code() == errc::address_in_use);
      }
    }
  }
  static void abandon(Transport& transport) { transport.abandon(); }
  static inline std::unique_ptr<Proxy> proxy;
};

bool has_nginx() {
  bool const found = ::access(nginx, X_OK) == 0;
  if (!found) MESSAGE("skipped: no " << nginx);
  return found;
}

}  // namespace

TEST_CASE("workers reach each other through nginx, by paths of one address") {
  if (!has_nginx()) return;
  {
    TransportGroup<ProxiedRig> group(2);
    group.start_and_run();
    Completions completions;
    for (std::uint64_t i = 0; i < 20; ++i) {
      for (std::uint32_t from : {0u, 1u}) {
        group[from].async_send({1 - from},
                               numbered_message(i, "x", {patterned_buffer((1 << 20) + 5, 1)}),
                               completions.next());
      }
    }
    for (std::size_t rank : {0u, 1u}) REQUIRE(group.sink(rank).wait_for_arrivals(20));
    REQUIRE(completions.wait());
    // A goodbye gets through as one.
    group[0].close();
    REQUIRE(group.sink(1).wait_for_losses(1));
    CHECK(group.sink(1).losses()[0].why == errc::closed);
  }
  ProxiedRig::proxy = nullptr;
}

TEST_CASE("the HTTP status of a proxy says why there is no connection") {
  if (!has_nginx()) return;
  auto const error_at = [](std::string const& path) {
    RecordingSink sink;
    auto transports = ProxiedRig::make(2);
    auto const proxied = transports[0]->local_endpoint();
    transports[0] = nullptr;  // nobody listens behind the proxy any more
    TransportSetup setup;
    setup.self = {1};
    setup.group = {{{"absent", {0}, {100}}, proxied.substr(0, proxied.rfind('/')) + path},
                   {{"here", {1}, {101}}, transports[1]->local_endpoint()}};
    setup.sink = &sink;
    setup.connect_timeout = milliseconds(50);
    transports[1]->start(setup);
    REQUIRE(eventually([&] {
      transports[1]->run_until(Clock::now() + milliseconds(10));
      return !sink.losses().empty();
    }));
    ProxiedRig::proxy = nullptr;
    return sink.losses()[0].why;
  };
  auto const absent = error_at("/w0"), unknown = error_at("/nobody");
  CHECK(absent.message().find("502 Bad Gateway") != std::string::npos);
  CHECK(unknown.message().find("404 Not Found") != std::string::npos);
  CHECK(absent == condition::peer_lost);
}

}  // namespace websocket_proxy_tests
