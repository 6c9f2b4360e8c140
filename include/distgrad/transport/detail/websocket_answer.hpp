#pragma once
#include <string>

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include <distgrad/transport/concept.hpp>
#include <distgrad/transport/detail/websocket_stream.hpp>
#include <distgrad/version.hpp>

namespace distgrad::detail {

/// What a person reads who opens a worker's address in a browser. Says nothing that the address
/// does not give away, apart from the worker's name.
inline std::string explain_worker(TransportSetup const& setup) {
  auto const& self = setup.group[setup.self.value];
  return "This is worker '" + self.info.name + "', rank " + to_string(self.info.id) + " of " +
         std::to_string(setup.group.size()) + ", of a distgrad job (protocol version " +
         std::to_string(protocol_version) +
         ").\n"
         "It takes WebSocket connections of the job's other workers at\n  " +
         self.endpoint + "\nwith the subprotocol \"" + websocket_subprotocol +
         "\": use distgrad::WebSocketTransport.\n";
}

using HttpAnswer = boost::beast::http::response<boost::beast::http::string_body>;

/// The answer to a request that asks for no WebSocket of ours.
/// @param is_head only the header was asked for. @source RFC 9110 section 15.5.22
inline HttpAnswer upgrade_required(TransportSetup const& setup, bool is_head) {
  namespace http = boost::beast::http;
  HttpAnswer answer(http::status::upgrade_required, 11);
  answer.set(http::field::upgrade, "websocket");
  answer.set(http::field::connection, "Upgrade, close");
  answer.set(http::field::sec_websocket_protocol, websocket_subprotocol);
  answer.set(http::field::content_type, "text/plain; charset=utf-8");
  answer.set(http::field::cache_control, "no-store");
  answer.body() = explain_worker(setup);
  answer.prepare_payload();
  if (is_head) answer.body().clear();
  return answer;
}

}  // namespace distgrad::detail
