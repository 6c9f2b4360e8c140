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

/// What `RendezvousPolicy` asks for, one by one.
namespace rendezvous_needs {
template <class T>
concept contract = requires { requires std::derived_from<typename T::contract, rendezvous_v1>; };
template <class T>
concept exchange = requires(T& t, PeerAddress self, std::uint32_t world_size, Deadline deadline) {
  { t.exchange(std::move(self), world_size, deadline) } -> std::same_as<std::vector<PeerAddress>>;
};
}  // namespace rendezvous_needs

/// How workers find one another. `exchange` makes this worker known, waits until all `world_size`
/// are, and returns the group in the order of ranks. Meaning, threads and errors:
/// docs/policies/rendezvous.md.
template <class T>
concept RendezvousPolicy = rendezvous_needs::contract<T> && rendezvous_needs::exchange<T>;

/// Compiles if `T` is a `RendezvousPolicy`; otherwise the first error says what it lacks.
template <class T>
struct RendezvousCheck {
  static_assert(rendezvous_needs::contract<T>,
                "RendezvousPolicy needs: a type `contract` derived from distgrad::rendezvous_v1");
  static_assert(rendezvous_needs::exchange<T>,
                "RendezvousPolicy needs: std::vector<PeerAddress> exchange(PeerAddress, "
                "std::uint32_t, Deadline)");
};

}  // namespace distgrad
