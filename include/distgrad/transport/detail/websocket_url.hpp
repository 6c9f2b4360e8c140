#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include <distgrad/wire/host_port.hpp>

namespace distgrad::detail {

/// A WebSocket endpoint, as in "ws://proxy:8080/w0" or "ws://[::1]:29500/".
struct WebSocketUrl {
  HostPort at;
  /// Path and query, at least "/".
  std::string target;
  friend bool operator==(WebSocketUrl const&, WebSocketUrl const&) = default;
};

/// Without a port it is 80. @return nothing for another scheme, a user name, a fragment, or a
/// character that could not stand in the first line of a request.
/// @source RFC 6455 section 3, RFC 3986
inline std::optional<WebSocketUrl> parse_websocket_url(std::string_view text) {
  constexpr std::string_view scheme = "ws://";
  auto const is_plain = [](char c) { return c > ' ' && c < 0x7f && c != '#'; };
  if (!text.starts_with(scheme) || !std::ranges::all_of(text, is_plain)) return std::nullopt;
  text.remove_prefix(scheme.size());
  auto const end = std::min(text.find_first_of("/?"), text.size());
  std::string authority(text.substr(0, end));
  std::string target(text.substr(end));
  if (!target.starts_with('/')) target.insert(0, "/");
  bool const has_port = authority.find(':', authority.rfind(']') + 1) != std::string::npos;
  auto const at = parse_host_port(has_port ? authority : authority + ":80");
  if (!at || at->port == 0 || at->host.find('@') != std::string::npos) return std::nullopt;
  return WebSocketUrl{*at, std::move(target)};
}

inline std::string to_string(WebSocketUrl const& url) {
  return "ws://" + to_string(url.at) + url.target;
}

}  // namespace distgrad::detail
