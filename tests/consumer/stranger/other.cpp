// A second file, so that a function that is not inline is defined twice and fails to link.
#include <distgrad/tensor/tensor_meta.hpp>

bool other_file_agrees(distgrad::error_code code) {
  return code.category() == distgrad::distgrad_category() && code == distgrad::condition::timeout;
}
