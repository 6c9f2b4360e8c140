// Apart from the others' file, so that they run beside each other: serial lines take their time.
#include <pty.h>
#include <sys/socket.h>
#include <termios.h>

#include <distgrad/testing/transport_conformance.hpp>
#include <distgrad/transport/serial_transport.hpp>

namespace {

using namespace distgrad;

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

}  // namespace

TYPE_TO_STRING(SerialOverSocketsRig);
TYPE_TO_STRING(SerialOverTerminalsRig);

using namespace distgrad::testing;
TEST_CASE_TEMPLATE_INVOKE(transport_conformance, SerialOverSocketsRig, SerialOverTerminalsRig);
