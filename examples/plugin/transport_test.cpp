// Does the transport keep its contract?
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <distgrad/testing/transport_conformance.hpp>

#include "unix_transport.hpp"

struct UnixRig {
  using Transport = plugin::UnixTransport;
  static std::vector<std::unique_ptr<Transport>> make(std::size_t count) {
    std::vector<std::unique_ptr<Transport>> all(count);
    for (auto& one : all) one = std::make_unique<Transport>();
    return all;
  }
  static void abandon(Transport& transport) { transport.abandon(); }
};

using namespace distgrad::testing;
TEST_CASE_TEMPLATE_INVOKE(transport_conformance, UnixRig);
