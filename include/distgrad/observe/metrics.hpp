#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <distgrad/core/ids.hpp>
#include <distgrad/observe/call_series.hpp>
#include <distgrad/observe/metric.hpp>
#include <distgrad/observe/pass_record.hpp>

namespace distgrad {

/// What a message is there for, as traffic is counted.
enum class TrafficKind : std::uint8_t {
  call,      ///< asks to run a function
  answer,    ///< its result or error
  rref,      ///< keeps count of references
  gradient,  ///< gradients of a backward pass
  control,   ///< everything else: how passes, contexts and groups begin and end
};
inline constexpr std::array traffic_kind_names = {"call", "answer", "rref", "gradient", "control"};

/// Messages between this worker and one peer, by kind.
struct PeerTraffic {
  struct Cell {
    MetricCounter messages, bytes;
    void add(std::uint64_t message_bytes) noexcept {
      messages.add();
      bytes.add(message_bytes);
    }
  };
  using Cells = std::array<Cell, traffic_kind_names.size()>;
  Cells sent, received;
  /// Nothing will come from the peer or reach it any more.
  std::atomic<bool> is_lost{false};
};

/// Backward passes of one mode in one role.
struct PassSeries {
  MetricCounter begun, gradients_sent, gradients_received;
  MetricHistogram duration;
  FailureCounts failures;
};

/// Everything that is counted of one engine while it is watched. Whoever counts uses the probes of
/// `observer.hpp`; whoever reads gets each number as it is at that moment.
/// @threads safe: shared object. Counting takes no lock, except what failed and the end of a pass.
struct Metrics {
  explicit Metrics(std::size_t world_size) : traffic(world_size) {}

  CallSeriesTable made;              ///< Calls this worker made, by function and callee.
  CallSeriesTable served;            ///< Calls this worker ran, by function and caller.
  std::vector<PeerTraffic> traffic;  ///< By rank.
  PassSeries passes[2][2];           ///< By whether the mode is SMART, and who is the initiator.
  PassHistory pass_history;
  MetricGauge tasks_waiting;  ///< Handed to the compute queue and not started.
  MetricHistogram task_wait;  ///< How long they waited there.

  PassSeries& passes_of(PassRecord const& r) { return passes[r.is_smart][r.is_initiator]; }
};

}  // namespace distgrad
