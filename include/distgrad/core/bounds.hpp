#pragma once
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include <distgrad/config.hpp>
#include <distgrad/core/error.hpp>

namespace distgrad {

/// A bound that was chosen when the program was built.
struct Bound {
  /// Zero: none.
  std::size_t most;
  char const* macro;
  /// What there is no more of, in the plural.
  char const* what;

  bool has_room(std::size_t used) const { return most == 0 || used < most; }
  /// @throws Error `limit_reached` when `used` are all there may be.
  void require_room(std::size_t used) const {
    if (!has_room(used)) DISTGRAD_THROW(exceeded());
  }
  /// What the one that came too many gets.
  Error exceeded() const {
    return Error(errc::limit_reached,
                 "there are " + std::to_string(most) + " " + what + " already, as many as " +
                     macro + " allows; let some end first, or build with a larger bound");
  }
};

/// The macros of config.hpp that bound what comes and goes.
namespace bounds {
inline constexpr Bound calls{DISTGRAD_MAX_CALLS, "DISTGRAD_MAX_CALLS", "calls in flight"};
inline constexpr Bound unsent_bytes{DISTGRAD_MAX_UNSENT_BYTES, "DISTGRAD_MAX_UNSENT_BYTES",
                                    "bytes that wait to be sent"};
inline constexpr Bound contexts{DISTGRAD_MAX_CONTEXTS, "DISTGRAD_MAX_CONTEXTS",
                                "autograd contexts"};
inline constexpr Bound passes{DISTGRAD_MAX_PASSES, "DISTGRAD_MAX_PASSES", "backward passes"};
inline constexpr Bound rrefs{DISTGRAD_MAX_RREFS, "DISTGRAD_MAX_RREFS", "remote references"};
}  // namespace bounds

/// The places that a bound allows, given out one by one: exact, however many threads ask.
/// @threads safe: shared object.
class Places {
 public:
  struct GiveBack {
    void operator()(std::atomic<std::size_t>* taken) const noexcept { --*taken; }
  };
  /// Taken until it is destroyed or reset; the `Places` must live as long.
  using Place = std::unique_ptr<std::atomic<std::size_t>, GiveBack>;

  explicit Places(Bound bound) : bound_(bound) {}

  /// @throws Error `limit_reached`. @cost nothing without a bound.
  Place take() {
    if (bound_.most == 0) return {};
    Place place(&taken_);
    if (taken_++ >= bound_.most) DISTGRAD_THROW(bound_.exceeded());
    return place;
  }

 private:
  Bound bound_;
  std::atomic<std::size_t> taken_{0};
};

}  // namespace distgrad
