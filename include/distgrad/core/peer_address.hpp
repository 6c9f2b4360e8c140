#pragma once
#include <string>

#include <distgrad/core/worker_info.hpp>

namespace distgrad {

/// A member of the group and the text by which its transport is reached. Rendezvous passes these
/// around; only the transport that made `endpoint` reads it.
struct PeerAddress {
  WorkerInfo info;
  std::string endpoint;
  /// What its engine says of its devices (any bytes); empty if that is nothing.
  std::string devices = {};
  friend bool operator==(PeerAddress const&, PeerAddress const&) = default;
};

}  // namespace distgrad
