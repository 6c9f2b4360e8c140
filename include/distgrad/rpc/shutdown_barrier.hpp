#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/wire/frame.hpp>

namespace distgrad {

/// How a group ends together: nobody leaves while another may still need it. A state machine
/// without I/O; rank 0 counts for all, itself included.
///
/// | worker | event | next | message |
/// |---|---|---|---|
/// | working | wants to leave | waiting | ready to rank 0 |
/// | waiting | check of round r | asked r | - |
/// | asked r | is idle | waiting | state (r, calls made so far) to rank 0 |
/// | waiting | leave | left | - |
///
/// | rank 0 | event | next | message |
/// |---|---|---|---|
/// | gathering | ready of the last worker | round 1 | check 1 to all |
/// | round r | last state, calls as in round r-1 | over | leave to all |
/// | round r | last state, else | round r+1 | check r+1 to all |
///
/// A worker that wants to leave goes on serving, and may make calls while it serves. So rank 0
/// asks until a whole round finds everybody idle with no call made since the round before: then no
/// call is under way that could cause another. A lost worker counts as ready and idle.
/// @threads one thread at a time.
class ShutdownBarrier {
 public:
  struct Send {
    WorkerId to;
    FrameKind kind{};
    std::uint64_t round = 0;
    std::uint64_t calls = 0;
    friend bool operator==(Send const&, Send const&) = default;
  };

  ShutdownBarrier(WorkerId self, std::uint32_t world_size) : self_(self), world_size_(world_size) {}

  std::vector<Send> want_to_leave();
  /// A message of kind `shutdown_*` arrived.
  std::vector<Send> on_message(WorkerId from, FrameKind kind, std::uint64_t round,
                               std::uint64_t calls);
  /// Looks at this worker's state; call whenever it may have become idle.
  std::vector<Send> look(bool is_idle, std::uint64_t calls_made);
  std::vector<Send> peer_lost(WorkerId worker);

  bool has_left() const { return left_; }
  /// Whether somebody asked and waits for this worker to become idle.
  bool is_asked() const { return asked_.has_value(); }
  /// On rank 0: who has not said that it wants to leave.
  std::vector<WorkerId> missing() const;

 private:
  bool is_counting() const { return self_ == WorkerId{0}; }
  std::vector<Send> next_step();
  std::vector<Send> to_all(FrameKind kind, std::uint64_t round) const;

  WorkerId self_;
  std::uint32_t world_size_;
  bool left_ = false;
  std::optional<std::uint64_t> asked_;

  // rank 0 only
  std::set<WorkerId> ready_, lost_;
  std::uint64_t round_ = 0;
  bool over_ = false;
  std::map<WorkerId, std::uint64_t> calls_, last_calls_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rpc/impl/shutdown_barrier.ipp>
#endif
