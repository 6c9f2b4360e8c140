#include <distgrad/testing/transport_conformance.hpp>
#include <distgrad/transport/loopback_transport.hpp>
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

using TcpRig = SocketRig<TcpTransport, IPv4>;
using TcpOverIPv6Rig = SocketRig<TcpTransport, IPv6>;
using TcpOnAllInterfacesRig = SocketRig<TcpTransport, AllInterfaces>;
using WebSocketRig = SocketRig<WebSocketTransport, IPv4>;
using WebSocketOverIPv6Rig = SocketRig<WebSocketTransport, IPv6>;

}  // namespace

TYPE_TO_STRING(LoopbackRig);
TYPE_TO_STRING(TcpRig);
TYPE_TO_STRING(TcpOverIPv6Rig);
TYPE_TO_STRING(TcpOnAllInterfacesRig);
TYPE_TO_STRING(WebSocketRig);
TYPE_TO_STRING(WebSocketOverIPv6Rig);

using namespace distgrad::testing;
TEST_CASE_TEMPLATE_INVOKE(transport_conformance, LoopbackRig, TcpRig, TcpOverIPv6Rig,
                          TcpOnAllInterfacesRig, WebSocketRig, WebSocketOverIPv6Rig);
