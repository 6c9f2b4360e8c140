#pragma once
#include <atomic>

#include <boost/asio/io_context.hpp>

#include <distgrad/transport/concept.hpp>

namespace distgrad::detail {

/// What the parts of a TCP transport have in common.
struct TcpShared {
  /// Run by one thread, the one in `run_until`.
  boost::asio::io_context io{1};
  TransportSetup setup;
  /// The transport is being closed: nothing is delivered any more.
  std::atomic<bool> closing{false};
};

}  // namespace distgrad::detail
