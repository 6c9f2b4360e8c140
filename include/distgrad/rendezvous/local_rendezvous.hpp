#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include <distgrad/config.hpp>
#include <distgrad/rendezvous/concept.hpp>
#include <distgrad/rendezvous/detail/registration_table.hpp>

namespace distgrad {

/// Workers of one process meet here: one object, shared by their rendezvous. For one group, once.
/// @threads safe: shared object.
class LocalMeetingPoint {
 public:
  std::vector<PeerAddress> exchange(PeerAddress self, std::uint32_t world_size, Deadline deadline);

 private:
  void fail(ErrorReport problem);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<detail::RegistrationTable> table_;
  std::optional<ErrorReport> problem_;
};

/// Rendezvous within a process, without sockets.
class LocalRendezvous {
 public:
  using contract = rendezvous_v1;

  /// @param meeting shared by all workers of the group; without one, for a group of one.
  explicit LocalRendezvous(
      std::shared_ptr<LocalMeetingPoint> meeting = std::make_shared<LocalMeetingPoint>())
      : meeting_(std::move(meeting)) {}

  /// @throws Error in every worker when registrations contradict each other, or `timeout` when
  /// workers are missing at the deadline.
  std::vector<PeerAddress> exchange(PeerAddress self, std::uint32_t world_size, Deadline deadline) {
    return meeting_->exchange(std::move(self), world_size, deadline);
  }

 private:
  std::shared_ptr<LocalMeetingPoint> meeting_;
};

static_assert(RendezvousPolicy<LocalRendezvous>);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rendezvous/impl/local_rendezvous.ipp>
#endif
