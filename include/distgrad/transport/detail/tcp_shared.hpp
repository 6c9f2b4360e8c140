#pragma once
#include <atomic>
#include <limits>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <distgrad/transport/concept.hpp>
#include <distgrad/transport/detail/bell.hpp>

namespace distgrad::detail {

/// What the parts of a TCP transport have in common.
struct TcpShared {
  /// Run by one thread, the one in `run_until`.
  boost::asio::io_context io{1};
  /// Rung for what is posted to `io`: its own descriptor is not to be had.
  Bell bell;
  TransportSetup setup;
  /// The transport is being closed: nothing is delivered any more.
  std::atomic<bool> closing{false};
  /// Messages that may still be delivered in this `run_until`; the I/O thread's.
  std::size_t messages_left = std::numeric_limits<std::size_t>::max();

  /// Runs `handler` on the I/O thread, later. @threads any.
  template <class Handler>
  void post(Handler handler) {
    boost::asio::post(io, std::move(handler));
    bell.ring();
  }
  /// The same, at once if this is the I/O thread.
  template <class Handler>
  void dispatch(Handler handler) {
    boost::asio::dispatch(io, std::move(handler));
    bell.ring();
  }
};

}  // namespace distgrad::detail
