#pragma once
#include <chrono>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

namespace distgrad {

/// How `Context::backward` runs a pass.
struct BackwardOptions {
  /// Keep what nodes saved for backward, so that another pass over the same graph can follow.
  bool retain_graph = false;
  /// One gradient per root, of its shape; none: ones, for roots of a single element.
  std::vector<at::Tensor> gradients = {};
  /// Ends the pass with `errc::timeout`; zero means no limit. Whether a pass can go on at all is
  /// found out without a limit, see `EngineOptions::watchdog_interval`.
  std::chrono::nanoseconds timeout{0};
};

}  // namespace distgrad
