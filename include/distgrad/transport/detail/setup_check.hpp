#pragma once
#include <string>

#include <distgrad/transport/concept.hpp>
#include <distgrad/wire/secret.hpp>

namespace distgrad::detail {

/// What every transport needs to start.
inline void check_membership(TransportSetup const& setup) {
  if (!setup.sink || setup.self.value >= setup.group.size()) {
    throw_error(errc::invalid_argument,
                "transport start needs a sink and a group that has rank " + to_string(setup.self));
  }
}

/// What those need that show the job's secret to their peers.
inline void check_setup(TransportSetup const& setup) {
  check_membership(setup);
  if (setup.job_secret.size() > max_job_secret_bytes) {
    throw_error(errc::invalid_argument,
                "the job secret is longer than " + std::to_string(max_job_secret_bytes) + " bytes");
  }
}

}  // namespace distgrad::detail
