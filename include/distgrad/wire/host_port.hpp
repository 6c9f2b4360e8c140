#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace distgrad {

/// A host (name or address) and a TCP port, as in "worker3:29500", "10.0.0.3:0",
/// "[fe80::1%eth0]:5".
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  friend bool operator==(HostPort const&, HostPort const&) = default;
};

/// @return nothing unless `text` is all digits and at most 65535.
inline std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  auto const* end = text.data() + text.size();
  auto const result = std::from_chars(text.data(), end, port);
  if (text.empty() || result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return port;
}

/// The last colon separates the port; an address with colons of its own stands in brackets.
inline std::optional<HostPort> parse_host_port(std::string_view text) {
  auto const colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  auto const port = parse_port(text.substr(colon + 1));
  auto host = text.substr(0, colon);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return std::nullopt;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;
  }
  if (!port) return std::nullopt;
  return HostPort{std::string(host), *port};
}

inline std::string to_string(HostPort const& at) {
  bool const needs_brackets = at.host.find(':') != std::string::npos;
  return (needs_brackets ? "[" + at.host + "]" : at.host) + ":" + std::to_string(at.port);
}

}  // namespace distgrad
