#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <distgrad/core/result.hpp>
#include <distgrad/rendezvous/concept.hpp>
#include <distgrad/rendezvous/detail/registration_table.hpp>

namespace distgrad {

/// The group is known in advance: every worker is given the same list, and nobody is asked. The
/// list's incarnations are 0, "not known"; the transport then accepts whoever holds the address
/// and the job's secret. A worker with device maps, or to whose devices others map, needs its
/// `PeerAddress::devices` in the list.
class StaticRendezvous {
 public:
  using contract = rendezvous_v1;

  /// @param group all workers with the endpoints their transports listen on, in any order.
  explicit StaticRendezvous(std::vector<PeerAddress> group) : group_(std::move(group)) {}

  /// @throws Error when the list contradicts itself or the caller (invalid_name, duplicate_name,
  /// duplicate_rank, world_size_mismatch, invalid_argument).
  std::vector<PeerAddress> exchange(PeerAddress self, std::uint32_t world_size, Deadline deadline) {
    return try_exchange(std::move(self), world_size, deadline).value();
  }
  /// The same with errors as values.
  Result<std::vector<PeerAddress>> try_exchange(PeerAddress self, std::uint32_t world_size,
                                                Deadline) {
    if (auto problem = detail::find_problem(group_)) return std::move(*problem);
    auto group = group_;
    std::sort(group.begin(), group.end(),
              [](auto const& a, auto const& b) { return a.info.id < b.info.id; });
    if (group.size() != world_size) {
      return ErrorReport{errc::world_size_mismatch,
                         "the list names " + std::to_string(group.size()) + " workers, worker '" +
                             self.info.name + "' expects " + std::to_string(world_size)};
    }
    auto const rank = self.info.id.value;
    if (rank >= world_size || group[rank].info.name != self.info.name) {
      return ErrorReport{
          errc::invalid_argument,
          "the list does not name worker '" + self.info.name + "' as rank " + std::to_string(rank)};
    }
    group[rank].info.incarnation = self.info.incarnation;
    group[rank].devices = self.devices;
    return group;
  }

 private:
  std::vector<PeerAddress> group_;
};

static_assert(RendezvousPolicy<StaticRendezvous>);

}  // namespace distgrad
