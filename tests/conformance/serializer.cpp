#include <distgrad/serialize/serializer.hpp>
#include <distgrad/testing/serializer_conformance.hpp>

namespace {

struct TensorRig {
  using Serializer = distgrad::TensorSerializer;
  static Serializer make() { return Serializer(); }
};

using namespace distgrad::testing;
TEST_CASE_TEMPLATE_INVOKE(serializer_conformance, TensorRig);

}  // namespace
