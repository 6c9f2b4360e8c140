#include <pty.h>
#include <sys/socket.h>
#include <termios.h>

#include <distgrad/testing/transport_conformance.hpp>
#include <distgrad/transport/loopback_transport.hpp>
#include <distgrad/transport/serial_transport.hpp>
#include <distgrad/transport/tcp_transport.hpp>
#include <distgrad/transport/websocket_transport.hpp>

namespace {

using namespace distgrad;

struct LoopbackRig {
  using Transport = LoopbackTransport;
  static std::vector<std::unique_ptr<Transport>> make(std::size_t count) {
    auto const hub = std::make_shared<LoopbackHub>();
    std::vector<std::unique_ptr<Transport>> all(count);
    for (auto& one : all) one = std::make_unique<Transport>(Transport::Options{hub});
    return all;
  }
  static void abandon(Transport& transport) { transport.abandon(); }
};

template <class Model, class Address>
struct SocketRig {
  using Transport = Model;
  static std::vector<std::unique_ptr<Transport>> make(std::size_t count) {
    typename Transport::Options options;
    options.bind_address = Address::text;
    std::vector<std::unique_ptr<Transport>> all(count);
    for (auto& one : all) one = std::make_unique<Transport>(options);
    return all;
  }
  static void abandon(Transport& transport) { transport.abandon(); }
};

struct IPv4 {
  static constexpr char const* text = "127.0.0.1";
};
struct IPv6 {
  static constexpr char const* text = "::1";
};
struct AllInterfaces {
  static constexpr char const* text = "";
};

/// A line between every two workers.
template <class Line>
struct SerialRigOver {
  using Transport = SerialTransport;
  static std::vector<std::unique_ptr<Transport>> make(std::size_t count) {
    std::vector<Transport::Options> options(count);
    for (std::uint32_t a = 0; a < count; ++a) {
      // A UART would be smaller; these sizes are for payloads of many megabytes.
      options[a].piece_bytes = 4096;
      options[a].window_pieces = 64;
      for (std::uint32_t b = 0; b < a; ++b) {
        int ends[2];
        Line::open(ends);
        options[a].lines.push_back({.peer = {b}, .descriptor = ends[0]});
        options[b].lines.push_back({.peer = {a}, .descriptor = ends[1]});
      }
    }
    std::vector<std::unique_ptr<Transport>> all;
    for (auto& one : options) all.push_back(std::make_unique<Transport>(std::move(one)));
    return all;
  }
  static void abandon(Transport& transport) { transport.abandon(); }
};

struct Socketpair {
  static void open(int (&ends)[2]) {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  }
};
struct Pseudoterminal {
  static void open(int (&ends)[2]) {
    REQUIRE(::openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr) == 0);
  }
};

using SerialOverSocketsRig = SerialRigOver<Socketpair>;
using SerialOverTerminalsRig = SerialRigOver<Pseudoterminal>;
using TcpRig = SocketRig<TcpTransport, IPv4>;
using TcpOverIPv6Rig = SocketRig<TcpTransport, IPv6>;
using TcpOnAllInterfacesRig = SocketRig<TcpTransport, AllInterfaces>;
using WebSocketRig = SocketRig<WebSocketTransport, IPv4>;
using WebSocketOverIPv6Rig = SocketRig<WebSocketTransport, IPv6>;

}  // namespace

TYPE_TO_STRING(LoopbackRig);
TYPE_TO_STRING(SerialOverSocketsRig);
TYPE_TO_STRING(SerialOverTerminalsRig);
TYPE_TO_STRING(TcpRig);
TYPE_TO_STRING(TcpOverIPv6Rig);
TYPE_TO_STRING(TcpOnAllInterfacesRig);
TYPE_TO_STRING(WebSocketRig);
TYPE_TO_STRING(WebSocketOverIPv6Rig);

using namespace distgrad::testing;
TEST_CASE_TEMPLATE_INVOKE(transport_conformance, LoopbackRig, TcpRig, TcpOverIPv6Rig,
                          TcpOnAllInterfacesRig, SerialOverSocketsRig, SerialOverTerminalsRig,
                          WebSocketRig, WebSocketOverIPv6Rig);
