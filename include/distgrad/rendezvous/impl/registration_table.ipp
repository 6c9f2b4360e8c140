#pragma once
#include <algorithm>
#include <utility>

#include <distgrad/rendezvous/detail/registration_table.hpp>

namespace distgrad::detail {

DISTGRAD_DECL std::string seconds_text(Clock::duration time) {
  auto const tenths = std::chrono::duration_cast<milliseconds>(time).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

inline std::string who(PeerAddress const& worker) {
  return "'" + worker.info.name + "' (rank " + to_string(worker.info.id) + ", " + worker.endpoint +
         ")";
}

DISTGRAD_DECL std::optional<ErrorReport> find_problem(std::uint32_t world_size,
                                                      WorkerInfo const& self) {
  if (world_size >= 1 && world_size <= max_world_size) return std::nullopt;
  return ErrorReport{errc::invalid_argument,
                     "worker '" + self.name + "': a world size of " + std::to_string(world_size) +
                         " is not between 1 and " + std::to_string(max_world_size)};
}

DISTGRAD_DECL void check_world_size(std::uint32_t world_size, WorkerInfo const& self) {
  if (auto const problem = find_problem(world_size, self)) {
    throw_error(problem->code, problem->text);
  }
}

DISTGRAD_DECL std::optional<ErrorReport> RegistrationTable::add(Registration const& registration) {
  auto const& self = registration.self;
  auto const rank = self.info.id.value;
  auto const size = std::to_string(slots_.size());
  if (registration.world_size != slots_.size()) {
    return ErrorReport{errc::world_size_mismatch,
                       "worker " + who(self) + " expects a world size of " +
                           std::to_string(registration.world_size) + ", the group has " + size +
                           "; start all workers with the same world size"};
  }
  if (rank >= slots_.size()) {
    return ErrorReport{errc::invalid_argument, "worker " + who(self) +
                                                   " has a rank outside the world size of " + size +
                                                   "; ranks count from 0"};
  }
  if (!is_valid_worker_name(self.info.name)) {
    return ErrorReport{errc::invalid_name, "worker " + who(self) +
                                               " has a name that is not 1 to 127 of the characters "
                                               "A-Z a-z 0-9 _ : -"};
  }
  if (auto const& other = slots_[rank]) {
    return ErrorReport{errc::duplicate_rank,
                       "workers " + who(*other) + " and " + who(self) +
                           " have the same rank; give each rank to one process"};
  }
  for (auto const& other : slots_) {
    if (other && other->info.name == self.info.name) {
      return ErrorReport{errc::duplicate_name, "workers " + who(*other) + " and " + who(self) +
                                                   " have the same name; names must differ"};
    }
  }
  slots_[rank] = self;
  return std::nullopt;
}

DISTGRAD_DECL std::string RegistrationTable::missing_text() const {
  constexpr std::size_t most = 16;
  auto const missing = missing_count();
  std::string text = missing == 1 ? "rank " : "ranks ";
  std::size_t listed = 0;
  for (std::size_t rank = 0; rank < slots_.size() && listed < most; ++rank) {
    if (slots_[rank]) continue;
    if (listed) text += listed + 1 == missing ? " and " : ", ";
    text += std::to_string(rank);
    ++listed;
  }
  if (missing > listed) text += " and " + std::to_string(missing - listed) + " more";
  return text + " of " + std::to_string(slots_.size());
}

DISTGRAD_DECL std::vector<PeerAddress> RegistrationTable::group() const {
  std::vector<PeerAddress> all;
  all.reserve(slots_.size());
  for (auto const& slot : slots_) all.push_back(*slot);
  return all;
}

DISTGRAD_DECL std::size_t RegistrationTable::missing_count() const {
  return static_cast<std::size_t>(
      std::count_if(slots_.begin(), slots_.end(), [](auto const& slot) { return !slot; }));
}

DISTGRAD_DECL std::optional<ErrorReport> find_problem(std::vector<PeerAddress> const& group) {
  auto const size = static_cast<std::uint32_t>(group.size());
  RegistrationTable table(size);
  for (auto const& worker : group) {
    if (auto problem = table.add({worker, size})) return problem;
  }
  return std::nullopt;
}

DISTGRAD_DECL void check_group(std::vector<PeerAddress> const& group) {
  if (auto const problem = find_problem(group)) throw_error(problem->code, problem->text);
}

}  // namespace distgrad::detail
