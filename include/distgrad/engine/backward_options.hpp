#pragma once
#include <chrono>
#include <cstdint>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

namespace distgrad {

/// How a backward pass finds out which calls of its context take part.
enum class BackwardMode : std::uint8_t {
  /// The workers ask one another before the first gradient moves. Right for every graph.
  smart,
  /// Every call of the context that carried gradients is taken to take part. Fewer messages; a
  /// call whose result is not used ends the pass with `errc::pass_stuck`.
  fast,
};

/// When a worker's gradients become visible.
enum class GradientCommit : std::uint8_t {
  /// When its part of the pass is complete. After a failed pass some workers may have theirs.
  local,
  /// When every worker's part is complete: a failed pass leaves all gradients as they were. Costs
  /// two small messages per worker.
  global,
};

/// How `Context::backward` runs a pass.
struct BackwardOptions {
  BackwardMode mode = BackwardMode::smart;
  /// Keep what nodes saved for backward, so that another pass over the same graph can follow.
  bool retain_graph = false;
  /// Gradients get a graph of their own, over all workers, so that they can be differentiated
  /// again. Implies `retain_graph`.
  bool create_graph = false;
  /// One gradient per root, of its shape; an undefined one, or none at all: ones, for roots of a
  /// single element.
  std::vector<at::Tensor> gradients = {};
  /// Leaves of this worker. If there are any, only they get gradients: no other leaf, here or on
  /// another worker.
  std::vector<at::Tensor> inputs = {};
  /// Add to `.grad` of every leaf, on its worker, instead of to the context. Passes that do so at
  /// the same time are taken one by one.
  bool accumulate_grad = false;
  GradientCommit commit = GradientCommit::local;
  /// Ends the pass with `errc::timeout`; zero means no limit. A pass that failed takes up to one
  /// second more for every worker to stop. Whether a pass in FAST mode can go on
  /// at all is found out without a limit, see `EngineOptions::watchdog_interval`.
  std::chrono::nanoseconds timeout{0};
};

}  // namespace distgrad
