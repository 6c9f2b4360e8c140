#pragma once
#include <string>

#include <boost/beast/http/status.hpp>

#include <distgrad/core/error.hpp>

namespace distgrad::detail {

/// Errors whose number is the HTTP status that came instead of a WebSocket.
class HttpStatusCategory final : public boost::system::error_category {
 public:
  char const* name() const noexcept override { return "http"; }
  std::string message(int status) const override {
    auto const known = boost::beast::http::int_to_status(static_cast<unsigned>(status));
    return "the server at the endpoint answered " + std::to_string(status) + " " +
           std::string(boost::beast::http::obsolete_reason(known)) +
           " instead of opening a WebSocket";
  }
  boost::system::error_condition default_error_condition(int) const noexcept override {
    return condition::peer_lost;
  }
};

/// What a proxy says when it knows no worker (404), or cannot reach it (502, 504).
inline error_code http_status_error(unsigned status) {
  static HttpStatusCategory const category;
  return {static_cast<int>(status), category};
}

}  // namespace distgrad::detail
