#include <distgrad/wire/host_port.hpp>

#include <doctest/doctest.h>

namespace host_port_tests {

using namespace distgrad;

TEST_CASE("hosts and ports survive text, scopes of IPv6 addresses included") {
  for (auto const* text : {"127.0.0.1:80", "worker-3.cluster:29500", "[::1]:0",
                           "[fe80::1%lo]:65535", "[::ffff:10.0.0.1]:1"}) {
    CAPTURE(text);
    auto const parsed = parse_host_port(text);
    REQUIRE(parsed);
    CHECK(to_string(*parsed) == text);
  }
  CHECK(parse_host_port("[fe80::1%lo]:5")->host == "fe80::1%lo");
  CHECK(parse_host_port("[::1]:7") == HostPort{"::1", 7});
}

TEST_CASE("text that is no host and port is refused") {
  for (auto const* text : {"", ":", "host", "host:", ":80", "host:80x", "host:-1", "host:65536",
                           "host: 80", "::1:80", "[]:80", "[::1]", "[::1:80", "[:80"}) {
    CAPTURE(text);
    CHECK(!parse_host_port(text));
  }
}

TEST_CASE("a port is digits up to 65535") {
  CHECK(parse_port("0") == 0);
  CHECK(parse_port("65535") == 65535);
  for (auto const* text : {"", "+1", "1 ", "0x10", "65536", "999999999999999999999"}) {
    CHECK(!parse_port(text));
  }
}

}  // namespace host_port_tests
