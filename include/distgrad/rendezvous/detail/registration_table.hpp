#pragma once
#include <optional>
#include <string>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/deadline.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/peer_address.hpp>

namespace distgrad::detail {

/// "2.5 s"
DISTGRAD_DECL std::string seconds_text(Clock::duration time);

/// What a worker says about itself.
struct Registration {
  PeerAddress self;
  std::uint32_t world_size = 0;
};

/// More workers than anyone starts; a larger world size is a mistake.
inline constexpr std::uint32_t max_world_size = 1u << 20;

/// @return invalid_argument unless 1 <= world_size <= max_world_size.
DISTGRAD_DECL std::optional<ErrorReport> find_problem(std::uint32_t world_size,
                                                      WorkerInfo const& self);
/// @throws Error the same.
DISTGRAD_DECL void check_world_size(std::uint32_t world_size, WorkerInfo const& self);

/// Who has registered, without I/O. The first contradiction is the whole group's problem.
/// @threads one at a time.
class RegistrationTable {
 public:
  explicit RegistrationTable(std::uint32_t world_size) : slots_(world_size) {}

  /// @return what is wrong with the registration, or between it and an earlier one.
  std::optional<ErrorReport> add(Registration const& registration);
  /// The worker went away before the group was complete, and may come again.
  void remove(WorkerId id) { slots_[id.value].reset(); }

  bool is_complete() const { return missing_count() == 0; }
  /// "ranks 1 and 3 of 4", "ranks 1, 2, 3 and 60 more of 64".
  std::string missing_text() const;
  /// In the order of ranks. @pre complete.
  std::vector<PeerAddress> group() const;

 private:
  std::size_t missing_count() const;

  std::vector<std::optional<PeerAddress>> slots_;
};

/// What is wrong with a group given as a whole: names are valid and different, ranks 0, 1, ...
DISTGRAD_DECL std::optional<ErrorReport> find_problem(std::vector<PeerAddress> const& group);
/// @throws Error the same.
DISTGRAD_DECL void check_group(std::vector<PeerAddress> const& group);

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rendezvous/impl/registration_table.ipp>
#endif
