#pragma once
// For tests that give a worker a new leaf while it may still be letting go of the last one.

#include <vector>

#include <distgrad/distgrad.hpp>

namespace rig {

/// The same tensor, which lives until the program ends. ThreadSanitizer does not see libtorch count
/// references: where another thread than the test's drops the last one it reports a race.
/// @threads the test's alone.
inline at::Tensor kept(at::Tensor tensor) {
  static std::vector<at::Tensor> all;
  all.push_back(tensor);
  return tensor;
}

}  // namespace rig
