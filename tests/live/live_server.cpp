#include <distgrad/live/live_server.hpp>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <boost/json/src.hpp>

#include <ATen/ops/ones.h>

#include <future>
#include <string>

#include "../flow/rig.hpp"
#include "../observe/exposition.hpp"

namespace live_server_tests {

using namespace distgrad;
using namespace std::chrono_literals;
namespace asio = boost::asio;
namespace json = boost::json;

namespace {

at::Tensor twice(at::Tensor const& x) { return x.mul(2); }
std::promise<void>* started = nullptr;
std::shared_future<void>* gate = nullptr;
int wait_for_gate(int x) {
  started->set_value();
  gate->wait();
  return x;
}

struct Answer {
  int status = 0;
  std::string head, body;
  bool has(std::string const& text) const { return head.find(text) != std::string::npos; }
};

/// A client that sends what it is told, however wrong.
class Client {
 public:
  explicit Client(LiveServer const& server) : socket_(io_) {
    socket_.connect({asio::ip::make_address("127.0.0.1"), server.port()});
  }
  void send(std::string const& text) { asio::write(socket_, asio::buffer(text)); }
  /// The next answer; status 0 when the server closed instead.
  Answer receive(bool has_body = true) {
    Answer answer;
    boost::system::error_code error;
    auto const size = asio::read_until(socket_, asio::dynamic_buffer(buffer_), "\r\n\r\n", error);
    if (error) return answer;
    answer.head = buffer_.substr(0, size);
    buffer_.erase(0, size);
    answer.status = std::stoi(answer.head.substr(9, 3));
    auto const at = answer.head.find("Content-Length: ");
    auto const length = at == std::string::npos ? 0 : std::stoul(answer.head.substr(at + 16));
    if (!has_body) return answer;
    if (buffer_.size() < length) {
      asio::read(socket_, asio::dynamic_buffer(buffer_),
                 asio::transfer_exactly(length - buffer_.size()));
    }
    answer.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    return answer;
  }
  Answer ask(std::string const& target, std::string const& method = "GET") {
    send(method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return receive(method != "HEAD");
  }
  void close() { socket_.close(); }

 private:
  asio::io_context io_;
  asio::ip::tcp::socket socket_;
  std::string buffer_;
};

rig::LoopbackEngine::Options watched() {
  auto options = rig::options<rig::LoopbackEngine>();
  options.metrics = true;
  return options;
}

struct Fixture {
  rig::Cluster<2, rig::LoopbackEngine> cluster{watched()};
  LiveServer server{cluster[0]};

  Answer ask(std::string const& target) { return Client(server).ask(target); }
  json::value read(std::string const& target) {
    auto const answer = ask(target);
    INFO(target, ": ", answer.body);
    REQUIRE(answer.status == 200);
    CHECK(answer.has("application/json"));
    return json::parse(answer.body);
  }
  void train_once() {
    auto context = cluster[0].context();
    auto const x = at::ones({4}).set_requires_grad(true);
    context.backward({cluster[0].rpc_sync<twice>("worker1", x).sum()});
  }
};

std::string text(json::value const& value) { return std::string(value.as_string()); }

}  // namespace

TEST_CASE_FIXTURE(Fixture, "the page is one file that loads nothing from elsewhere") {
  CHECK(server.url() == "http://127.0.0.1:" + std::to_string(server.port()) + "/");
  auto const page = ask("/");
  CHECK(page.status == 200);
  CHECK(page.has("text/html"));
  CHECK(page.has("default-src 'none'"));
  CHECK(page.has("nosniff"));
  CHECK(page.body.starts_with("<!DOCTYPE html>"));
  for (auto const* reference : {"src=", "@import", "url(", "innerHTML", "eval("}) {
    CAPTURE(reference);
    CHECK(page.body.find(reference) == std::string::npos);
  }
}

TEST_CASE_FIXTURE(Fixture, "numbers come as Prometheus text") {
  train_once();
  auto const answer = ask("/metrics");
  CHECK(answer.has(std::string(prometheus_content_type)));
  auto const text = exposition::parse(answer.body);
  CHECK(text.problems == "");
  CHECK(text.sum("distgrad_calls_total") == 1);
}

TEST_CASE_FIXTURE(Fixture, "a worker's state comes as JSON") {
  train_once();
  auto const held = cluster[0].remote<twice>("worker1", at::ones({2}));
  (void)held.to_here();
  auto context = cluster[0].context();
  auto const workers = read("/api/workers").at("workers").as_array();
  REQUIRE(workers.size() == 2);
  CHECK(text(workers[1].at("name")) == "worker1");
  CHECK(workers[1].at("lost") == false);
  auto const contexts = read("/api/contexts");
  REQUIRE(contexts.at("contexts").as_array().size() == 1);
  CHECK(text(contexts.at("contexts").as_array()[0].at("id")) == to_string(context.id()));
  CHECK(contexts.at("graphs").as_array().size() == 1);
  auto const passes = read("/api/passes");
  REQUIRE(passes.at("recent").as_array().size() == 1);
  CHECK(text(passes.at("recent").as_array()[0].at("initiator")) == "worker0");
  CHECK(read("/api/rrefs").at("used") == 1);
  auto const routes = read("/api/routes").at("routes").as_array();
  REQUIRE(routes.size() == 2);
  CHECK(routes[1].at("sent").at("call").at("messages").to_number<int>() >= 2);
  bool found = false;
  auto const functions = read("/api/functions");
  for (auto const& name : functions.at("functions").as_array()) {
    found = found || text(name) == distgrad::detail::Registered<twice>::function.entry.name;
  }
  CHECK(found);
}

TEST_CASE_FIXTURE(Fixture, "one worker shows the whole group") {
  train_once();
  auto const workers = read("/api/group").at("workers").as_array();
  REQUIRE(workers.size() == 2);
  auto const& served = workers[1].at("state").at("served").as_array();
  REQUIRE(served.size() >= 1);
  CHECK(text(workers[1].at("state").at("name")) == "worker1");

  auto const graphs = read("/api/contexts").at("graphs").as_array();
  REQUIRE(graphs.size() == 1);
  auto const parts = read("/api/graph?context=" + text(graphs[0])).at("workers").as_array();
  for (auto const& part : parts) CHECK(part.at("state").at("known") == true);
  CHECK(parts[1].at("state").at("vertices").as_array().size() == 3);  // send, Mul, recv
  CHECK(ask("/api/graph?context=0/1").status == 400);
  CHECK(ask("/api/graph?context=0/1/99999999999999999999").status == 400);
  CHECK(ask("/api/graph").status == 400);
  auto const unknown = read("/api/graph?context=0%2F1%2F2").at("workers").as_array();
  CHECK(unknown[0].at("state").at("known") == false);
}

TEST_CASE_FIXTURE(Fixture, "a worker that is gone is reported, and the others are shown") {
  cluster[1].stop();
  CHECK(
      rig::eventually([&] { return cluster[0].observer()->metrics().traffic[1].is_lost.load(); }));
  auto const workers = read("/api/group").at("workers").as_array();
  CHECK(text(workers[0].at("state").at("name")) == "worker0");
  CHECK(workers[1].as_object().contains("error"));
  CHECK(exposition::parse(ask("/metrics").body)
            .value(R"(distgrad_peer_up{worker="worker0",peer="worker1"})") == 0);
}

TEST_CASE_FIXTURE(Fixture, "a worker that is busy everywhere else answers at once") {
  std::promise<void> running, open;
  std::shared_future<void> opened(open.get_future());
  started = &running;
  gate = &opened;
  auto options = watched();
  options.queues.threads = 1;
  rig::Cluster<1, rig::LoopbackEngine> busy(options);
  LiveServer live(busy[0]);
  auto const result = busy[0].rpc_async<wait_for_gate>("worker0", 1);
  running.get_future().wait();
  auto const state = json::parse(Client(live).ask("/api/group").body).at("workers").as_array();
  CHECK(state[0].at("state").at("gauges").at("calls_in_flight") == 1);
  open.set_value();
  CHECK(result.get() == 1);
}

TEST_CASE_FIXTURE(Fixture, "health follows the engine") {
  CHECK(ask("/healthz").status == 200);
  cluster[0].stop();
  CHECK(ask("/healthz").status == 503);
  CHECK(ask("/api/group").status == 200);
}

TEST_CASE_FIXTURE(Fixture, "nothing can be changed, and nothing is there that is not listed") {
  for (std::string const method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    CAPTURE(method);
    auto const answer = Client(server).ask("/api/group", method);
    CHECK(answer.status == 405);
    CHECK(answer.has("Allow: GET, HEAD"));
  }
  for (std::string const target : {"/nothing", "/api/", "/api", "/../etc/passwd", "/metrics/"}) {
    CAPTURE(target);
    CHECK(ask(target).status == 404);
  }
  auto const head = Client(server).ask("/", "HEAD");
  CHECK(head.status == 200);
  CHECK(head.has("Content-Length: " + std::to_string(live_page.size())));
}

TEST_CASE_FIXTURE(Fixture, "what is no request is refused") {
  auto const status_of = [&](std::string const& bytes) {
    Client client(server);
    client.send(bytes);
    return client.receive().status;
  };
  CHECK(status_of("complete nonsense\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/9.9\r\nHost: localhost\r\n\r\n") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n") ==
        400);
  CHECK(status_of("GET / HTTP/1.1\r\nX: " + std::string(20000, 'x') + "\r\n\r\n") == 431);
  CHECK(ask("/healthz").status == 200);
}

TEST_CASE_FIXTURE(Fixture, "another page in a browser cannot read what is shown") {
  auto const status_of = [](LiveServer const& live, std::string const& host) {
    Client client(live);
    client.send("GET /healthz HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    return client.receive().status;
  };
  for (auto const* host : {"localhost", "localhost:8080", "127.0.0.1:1", "[::1]:80", "10.0.0.7"}) {
    CAPTURE(host);
    CHECK(status_of(server, host) == 200);
  }
  for (auto const* host : {"evil.example", "localhost.evil.example:80", "1.evil"}) {
    CAPTURE(host);
    CHECK(status_of(server, host) == 403);
  }
  LiveServer const open(cluster[0], {.accepts_any_host = true});
  CHECK(status_of(open, "jobs.example") == 200);
}

TEST_CASE_FIXTURE(Fixture, "a connection serves many requests, also when they come together") {
  Client client(server);
  for (int i = 0; i < 20; ++i) CHECK(client.ask("/healthz").status == 200);
  std::string const one = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
  client.send(one + one + one);
  for (int i = 0; i < 3; ++i) CHECK(client.receive().body == "ok\n");
  client.send("GET /healthz HTTP/1.0\r\n\r\n");
  CHECK(client.receive().status == 200);
  CHECK(client.receive().status == 0);  // closed, as HTTP/1.0 wants it
}

TEST_CASE_FIXTURE(Fixture, "connections are bounded, and a silent one ends") {
  LiveServer const small(cluster[0], {.max_connections = 2, .timeout = 300ms});
  Client silent(small), half(small), third(small);
  half.send("GET / HTTP/1.1\r\nHos");
  CHECK(third.ask("/healthz").status == 200);  // when one of the others has timed out
  CHECK(silent.receive().status == 0);
  CHECK(half.receive().status == 0);
}

TEST_CASE_FIXTURE(Fixture, "a server ends while it is asked, as often as it is made") {
  for (int i = 0; i < 20; ++i) {
    LiveServer live(cluster[0]);
    Client client(live);
    client.send("GET /api/group HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  CHECK(ask("/api/group").status == 200);
}

TEST_CASE("an address that is none or is taken is refused with its name") {
  rig::Cluster<1, rig::LoopbackEngine> cluster;
  CHECK(rig::error_of([&] { LiveServer(cluster[0], {.bind_address = "nowhere"}); }) ==
        errc::invalid_argument);
  LiveServer const first(cluster[0]);
  CHECK(rig::text_of([&] {
          LiveServer(cluster[0], {.port = first.port()});
        }).find(std::to_string(first.port())) != std::string::npos);
  CHECK(Client(first).ask("/metrics").status == 404);  // nothing is counted here
  CHECK(Client(first).ask("/api/group").status == 200);
}

TEST_CASE("a context's id is read as it is written") {
  ContextId const id{WorkerId{3}, Incarnation{4294967295u}, 12};
  CHECK(distgrad::detail::context_id_from(to_string(id)) == id);
  for (auto const* wrong :
       {"", "1/2", "1/2/3/4", "1/2/", "a/b/c", "1//3", "-1/2/3", "4294967296/1/1"}) {
    CAPTURE(wrong);
    CHECK_FALSE(distgrad::detail::context_id_from(wrong).is_valid());
  }
}

}  // namespace live_server_tests
