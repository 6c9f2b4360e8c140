#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <distgrad/core/ids.hpp>

namespace distgrad {

/// A send function that waits for its gradients.
struct AwaitedSend {
  AutogradMessageId message;
  /// The worker that should send them.
  WorkerId from;
  friend bool operator==(AwaitedSend const&, AwaitedSend const&) = default;
};

/// What one worker says of its part of a pass.
struct PassStatus {
  std::uint32_t round = 0;
  /// Nothing runs, is ready or waits to be delivered.
  bool is_idle = false;
  /// Gradient messages sent and received so far, those to itself not counted.
  std::uint64_t sent = 0, received = 0;
  std::set<WorkerId> peers;
  std::vector<AwaitedSend> awaited;
  /// The node that ran last before the pass was stopped; empty if none did.
  std::string node;
};

}  // namespace distgrad
