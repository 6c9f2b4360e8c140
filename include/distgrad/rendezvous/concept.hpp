#pragma once
#include <concepts>
#include <cstdint>
#include <utility>
#include <vector>

#include <distgrad/core/deadline.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/peer_address.hpp>

namespace distgrad {

/// The contract's version; a rendezvous names the one it was written for as `contract`.
struct rendezvous_v1 {};

/// How workers find one another. `exchange` makes this worker known, waits until all `world_size`
/// are, and returns the group in the order of ranks. Meaning, threads and errors:
/// docs/policies/rendezvous.md.
template <class T>
concept RendezvousPolicy = std::derived_from<typename T::contract, rendezvous_v1> &&
    requires(T& t, PeerAddress self, std::uint32_t world_size, Deadline deadline) {
  { t.exchange(std::move(self), world_size, deadline) } -> std::same_as<std::vector<PeerAddress>>;
};

}  // namespace distgrad
