// Does the serializer keep its contract, apart from the precision it gives up?
#include "bfloat16_serializer.hpp"

#include <distgrad/testing/serializer_conformance.hpp>

struct Bfloat16Rig {
  using Serializer = plugin::Bfloat16Serializer;
  static Serializer make() { return Serializer(); }
  /// Eight bits of mantissa are left, the last one rounded.
  static double tolerance(at::ScalarType type) { return type == at::kFloat ? 1.0 / 256 : 0; }
};

using namespace distgrad::testing;
TEST_CASE_TEMPLATE_INVOKE(serializer_conformance, Bfloat16Rig);
