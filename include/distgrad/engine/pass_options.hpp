#pragma once
#include <cstdint>

namespace distgrad {

/// How a pass runs, as every worker that takes part knows it; `BackwardOptions` explains.
struct PassOptions {
  bool is_smart = true;
  bool retain_graph = false;
  bool create_graph = false;
  bool accumulate_grad = false;
  bool commits_globally = false;
  /// Only leaves the initiator named get gradients.
  bool is_restricted = false;
  /// SMART: nodes run while workers still ask one another what takes part.
  bool is_overlapped = false;
  /// It differentiates a graph for a node of another pass.
  bool is_nested = false;

  std::uint8_t bits() const {
    return static_cast<std::uint8_t>(is_smart | retain_graph << 1 | create_graph << 2 |
                                     accumulate_grad << 3 | commits_globally << 4 |
                                     is_restricted << 5 | is_overlapped << 6 | is_nested << 7);
  }
  static PassOptions from_bits(std::uint8_t bits) {
    auto const is_set = [bits](int n) { return (bits >> n & 1) != 0; };
    return {is_set(0), is_set(1), is_set(2), is_set(3), is_set(4), is_set(5), is_set(6), is_set(7)};
  }
  friend bool operator==(PassOptions const&, PassOptions const&) = default;
};

}  // namespace distgrad
