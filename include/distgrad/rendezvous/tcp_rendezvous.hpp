#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/result.hpp>
#include <distgrad/rendezvous/concept.hpp>

namespace distgrad {

/// Rank 0 listens on one address, the others join, trying again until their deadline. Rank 0
/// sends everybody the group, or the reason why there is none.
///
/// The secret crosses the network in clear: it keeps other jobs out, not an eavesdropper.
class TcpRendezvous {
 public:
  using contract = rendezvous_v1;
  struct Options {
    /// Host name or address of rank 0, as the others reach it.
    std::string master_address = "127.0.0.1";
    /// 0 only for rank 0, together with `on_listening`: a free port, chosen by the kernel.
    std::uint16_t master_port = 0;
    std::string job_secret = {};
    /// Where rank 0 listens. Empty: on `master_address` only if that is the loopback interface,
    /// otherwise on all interfaces, IPv6 and IPv4.
    std::string bind_address = {};
    /// Called on rank 0 with the port, before anybody is waited for.
    std::function<void(std::uint16_t)> on_listening = {};
  };

  explicit TcpRendezvous(Options options) : options_(std::move(options)) {}

  /// @throws Error within the deadline (plus two seconds in which late workers are told about a
  /// failure): `address_in_use` naming the port; `duplicate_name`, `duplicate_rank`,
  /// `world_size_mismatch`, `invalid_name` in every worker; `bad_secret` and `version_mismatch` in
  /// the worker concerned; `timeout` listing the ranks that are missing; `unreachable` naming the
  /// address, how long it was tried and the last reason. Resolving a host name is not bounded by
  /// the deadline but by the system's resolver.
  std::vector<PeerAddress> exchange(PeerAddress self, std::uint32_t world_size, Deadline deadline);
  /// The same with errors as values.
  Result<std::vector<PeerAddress>> try_exchange(PeerAddress self, std::uint32_t world_size,
                                                Deadline deadline);

 private:
  std::optional<ErrorReport> check(PeerAddress const& self, std::uint32_t world_size) const;

  Options options_;
};

static_assert(RendezvousPolicy<TcpRendezvous>);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rendezvous/impl/tcp_rendezvous.ipp>
#endif
