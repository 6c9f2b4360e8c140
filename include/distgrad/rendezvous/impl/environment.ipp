#pragma once
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include <distgrad/rendezvous/environment.hpp>
#include <distgrad/wire/host_port.hpp>

namespace distgrad {
namespace detail {

[[noreturn]] inline void throw_bad_variable(std::string const& name, std::string const& what) {
  throw_error(errc::invalid_argument,
              "environment variable " + name + " " + what +
                  "; the launcher must set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

inline std::string required_variable(RendezvousSettings::Lookup const& lookup,
                                     std::string const& name, std::string const& meaning) {
  auto const* value = lookup(name.c_str());
  if (!value || !*value) throw_bad_variable(name, "is not set (" + meaning + ")");
  return value;
}

inline std::uint32_t number_variable(RendezvousSettings::Lookup const& lookup,
                                     std::string const& name, std::string const& meaning,
                                     std::uint32_t least) {
  auto const text = required_variable(lookup, name, meaning);
  std::uint32_t value = 0;
  auto const* end = text.data() + text.size();
  auto const parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < least) {
    throw_bad_variable(name, "is '" + text + "', not a number of at least " +
                                 std::to_string(least) + " (" + meaning + ")");
  }
  return value;
}

}  // namespace detail

DISTGRAD_DECL RendezvousSettings RendezvousSettings::from_environment(Lookup const& lookup) {
  using namespace detail;
  RendezvousSettings settings;
  settings.rank = number_variable(lookup, "RANK", "this worker's rank", 0);
  settings.world_size = number_variable(lookup, "WORLD_SIZE", "number of workers", 1);
  if (settings.rank >= settings.world_size) {
    throw_bad_variable("RANK", "is " + std::to_string(settings.rank) + ", but WORLD_SIZE is " +
                                   std::to_string(settings.world_size) + " and ranks count from 0");
  }
  if (auto const* secret = lookup("DISTGRAD_JOB_SECRET")) settings.job_secret = secret;
  if (settings.world_size == 1 && !lookup("MASTER_ADDR")) return settings;
  settings.master_address = required_variable(lookup, "MASTER_ADDR", "host name of rank 0");
  auto const port = required_variable(lookup, "MASTER_PORT", "port rank 0 listens on");
  auto const parsed = parse_port(port);
  if (!parsed || *parsed == 0) {
    throw_bad_variable("MASTER_PORT", "is '" + port + "', not a port from 1 to 65535");
  }
  settings.master_port = *parsed;
  return settings;
}

}  // namespace distgrad
