#pragma once
#include <distgrad/testing/transport_delivery.hpp>
#include <distgrad/testing/transport_life.hpp>

/// The behaviour every transport has to have. A plugin's test file says
///
///     struct YourRig {
///       using Transport = YourTransport;
///       // Transports that can reach one another.
///       static std::vector<std::unique_ptr<Transport>> make(std::size_t count);
///       // Ends one as if its process was killed.
///       static void abandon(Transport&);
///     };
///     using namespace distgrad::testing;
///     TEST_CASE_TEMPLATE_INVOKE(transport_conformance, YourRig);
namespace distgrad::testing {

TEST_CASE_TEMPLATE_DEFINE("a transport keeps its contract", Rig, transport_conformance) {
  transport_delivers_bytes<Rig>();
  transport_keeps_order<Rig>();
  transport_serves_its_worker<Rig>();
  transport_starts_and_waits<Rig>();
  transport_reports_losses<Rig>();
  transport_closes<Rig>();
}

}  // namespace distgrad::testing
