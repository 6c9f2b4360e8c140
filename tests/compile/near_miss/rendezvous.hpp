#pragma once
// One type per way to miss RendezvousPolicy by one requirement, and what the compiler has to say.
#include "near_miss.hpp"

#include <distgrad/rendezvous/archetype.hpp>

namespace near_rendezvous {

using namespace distgrad;

struct Model {
  using contract = rendezvous_v1;
  std::vector<PeerAddress> exchange(PeerAddress, std::uint32_t, Deadline);
};
HIT(Rendezvous, Model);
HIT(Rendezvous, RendezvousArchetype);

struct NoContract {
  std::vector<PeerAddress> exchange(PeerAddress, std::uint32_t, Deadline);
};
NEAR_MISS(Rendezvous, NoContract, "a type `contract` derived from distgrad::rendezvous_v1");

struct NoDeadline {
  using contract = rendezvous_v1;
  std::vector<PeerAddress> exchange(PeerAddress, std::uint32_t);
};
NEAR_MISS(Rendezvous, NoDeadline,
          "std::vector<PeerAddress> exchange(PeerAddress, std::uint32_t, Deadline)");

struct OfNames {
  using contract = rendezvous_v1;
  std::vector<std::string> exchange(PeerAddress, std::uint32_t, Deadline);
};
NEAR_MISS(Rendezvous, OfNames,
          "std::vector<PeerAddress> exchange(PeerAddress, std::uint32_t, Deadline)");

}  // namespace near_rendezvous
