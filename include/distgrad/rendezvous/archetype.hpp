#pragma once
#include <distgrad/rendezvous/concept.hpp>

namespace distgrad {

/// Exactly what `RendezvousPolicy` asks and nothing more. It has no bodies: never run.
class RendezvousArchetype {
 public:
  using contract = rendezvous_v1;

  explicit RendezvousArchetype(int);
  RendezvousArchetype(RendezvousArchetype const&) = delete;
  RendezvousArchetype& operator=(RendezvousArchetype const&) = delete;

  std::vector<PeerAddress> exchange(PeerAddress self, std::uint32_t world_size, Deadline deadline);
};

static_assert(RendezvousPolicy<RendezvousArchetype>);

}  // namespace distgrad
