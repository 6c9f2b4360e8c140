#include <distgrad/distgrad.hpp>
#include <distgrad/testing/engine_conformance.hpp>

namespace {

using namespace distgrad;

struct LoopbackEngineRig {
  using Engine = LoopbackEngine;
  static Engine::Options options() { return {}; }
};
struct TcpEngineRig {
  using Engine = TcpEngine;
  static Engine::Options options() {
    Engine::Options options;
    options.transport.bind_address = "127.0.0.1";
    return options;
  }
};
struct InlineEngineRig {
  using Engine = DistEngine<LoopbackTransport, InlineQueues>;
  static Engine::Options options() { return {}; }
};

}  // namespace

TYPE_TO_STRING(LoopbackEngineRig);
TYPE_TO_STRING(TcpEngineRig);
TYPE_TO_STRING(InlineEngineRig);

using namespace distgrad::testing;
TEST_CASE_TEMPLATE_INVOKE(engine_conformance, LoopbackEngineRig, TcpEngineRig, InlineEngineRig);
