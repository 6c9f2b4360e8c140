#pragma once
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace distgrad::detail {

// What a handler is asked: "/api/graph?context=0/1/2" is `path` "/api/graph" and `query`
// "context=0/1/2".
struct HttpQuestion {
  std::string path, query;

  // The value of a parameter of the query, percent-decoded.
  std::optional<std::string> parameter(std::string_view name) const;
};

struct HttpAnswer {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Takes an answer once, on any thread.
using HttpReply = std::function<void(HttpAnswer)>;
using HttpHandler = std::function<void(HttpQuestion const&, HttpReply)>;

inline std::string percent_decoded(std::string_view text) {
  auto const digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    bool const is_code =
        text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0;
    decoded += is_code ? static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])) : text[i];
    if (is_code) i += 2;
  }
  return decoded;
}

inline std::optional<std::string> HttpQuestion::parameter(std::string_view name) const {
  for (std::string_view rest = query; !rest.empty();) {
    auto const one = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    auto const key = one.substr(0, one.find('='));
    if (key == name) return percent_decoded(one.substr(std::min(one.size(), key.size() + 1)));
  }
  return std::nullopt;
}

// Whether a browser that asks for `host` can be trusted to mean this server: an address or
// "localhost". A page elsewhere could let its own name lead here, and read what it is told.
inline bool is_own_host(std::string_view host) {
  if (host.starts_with('[')) return host.find(']') != host.npos;  // an IPv6 address
  host = host.substr(0, host.find(':'));
  return host.empty() || host == "localhost" ||
         host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace distgrad::detail
