#include <distgrad/transport/detail/websocket_url.hpp>

#include <string>

#include <doctest/doctest.h>

namespace websocket_url_tests {

namespace {

using distgrad::detail::parse_websocket_url;

std::string normal(std::string_view text) {
  auto const url = parse_websocket_url(text);
  return url ? to_string(*url) : "nothing";
}

}  // namespace

TEST_CASE("a WebSocket URL is taken apart and put together again") {
  auto const url = parse_websocket_url("ws://proxy:8080/jobs/w0?key=1");
  REQUIRE(url);
  CHECK(url->at == distgrad::HostPort{"proxy", 8080});
  CHECK(url->target == "/jobs/w0?key=1");
  CHECK(normal("ws://127.0.0.1:29500/") == "ws://127.0.0.1:29500/");
  CHECK(normal("ws://[::1]:29500/w1") == "ws://[::1]:29500/w1");
}

TEST_CASE("a WebSocket URL may leave out the port and the path") {
  CHECK(normal("ws://proxy") == "ws://proxy:80/");
  CHECK(normal("ws://proxy:8080") == "ws://proxy:8080/");
  CHECK(normal("ws://[::1]/w1") == "ws://[::1]:80/w1");
  CHECK(normal("ws://proxy?key=1") == "ws://proxy:80/?key=1");
}

TEST_CASE("what is no WebSocket URL is nothing") {
  for (auto const* text : {"", "proxy:8080", "wss://proxy/", "http://proxy/", "ws://", "ws:///w0",
                           "ws://:8080/", "ws://proxy:0/", "ws://proxy:65536/", "ws://proxy:port/",
                           "ws://me@proxy/", "ws://proxy/#w0", "ws://proxy/w 0",
                           "ws://proxy/w0\r\nHost: other", "ws://[::1/", "ws://proxy/\xc3\xa4"}) {
    CAPTURE(text);
    CHECK(normal(text) == "nothing");
  }
}

}  // namespace websocket_url_tests
