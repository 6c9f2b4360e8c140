// Small, because it is compiled in many ways: headers of distgrad, with c10's and Boost's below.
#include <distgrad/tensor/tensor_meta.hpp>

int main() {
  distgrad::TensorMeta meta;
  meta.kind = distgrad::TensorKind::strided;
  meta.sizes = {2, 3};
  meta.strides = distgrad::dense_strides(meta.sizes);
  return meta.payload_bytes() == 6 * sizeof(float) ? 0 : 1;
}
