#pragma once
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

#include <distgrad/config.hpp>
#include <distgrad/core/error.hpp>

namespace distgrad {

/// What a launcher tells a worker about its group.
struct RendezvousSettings {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  /// Host name or address of rank 0.
  std::string master_address;
  std::uint16_t master_port = 0;
  std::string job_secret;

  /// Looks a variable up; null when it is not set.
  using Lookup = std::function<char const*(char const*)>;

  /// Reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and DISTGRAD_JOB_SECRET where it is set.
  /// With a world size of one the address and port may be missing.
  /// @throws Error invalid_argument, naming the variable and what it should hold.
  static RendezvousSettings from_environment(
      Lookup const& lookup = [](char const* name) -> char const* { return std::getenv(name); });
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rendezvous/impl/environment.ipp>
#endif
