#pragma once
#include <cstdint>

namespace distgrad {

/// What one serial line has seen. A packet carries a piece of a message, or is an acknowledgement
/// or a greeting.
struct SerialStatistics {
  std::uint64_t packets_sent = 0;
  /// Of those, pieces that were sent before.
  std::uint64_t packets_resent = 0;
  /// Intact ones.
  std::uint64_t packets_received = 0;
  /// Runs of bytes that were no intact packet: noise, or packets that noise has hit.
  std::uint64_t packets_damaged = 0;
  /// Intact ones that were not used: sent twice, after a lost one, or of another life.
  std::uint64_t packets_dropped = 0;
};

}  // namespace distgrad
