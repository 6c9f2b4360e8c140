// Does an engine work over the transport: calls, remote values, backward passes, failures?
#include <distgrad/distgrad.hpp>
#include <distgrad/testing/engine_conformance.hpp>

#include "unix_transport.hpp"

struct UnixEngineRig {
  using Engine = distgrad::DistEngine<plugin::UnixTransport, distgrad::CpuQueues>;
  static Engine::Options options() { return {}; }
};

using namespace distgrad::testing;
TEST_CASE_TEMPLATE_INVOKE(engine_conformance, UnixEngineRig);
