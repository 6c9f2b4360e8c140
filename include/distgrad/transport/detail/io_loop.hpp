#pragma once
#include <atomic>
#include <cstddef>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <distgrad/config.hpp>
#include <distgrad/transport/concept.hpp>
#include <distgrad/transport/detail/bell.hpp>

namespace distgrad::detail {

/// The loop of a transport on Asio, and what the parts of the transport share. The I/O thread is
/// the one inside `run_until`, whichever that is.
class IoLoop {
 public:
  /// @param release closes what the I/O thread uses. Called when it has left after `end`.
  explicit IoLoop(unique_function<void()> release)
      : work_(boost::asio::make_work_guard(io)), release_(std::move(release)) {}

  /// As the transport's function of this name.
  std::size_t run_until(time_point until, std::size_t limit);
  /// Makes the running or else the next `run_until` return. @threads any.
  void wake() noexcept;
  /// What is to be closed may still need the I/O thread: does its work that is ready, unless
  /// another thread is at it. @threads any, also the I/O thread.
  void turn_once() noexcept;
  /// Lets nobody in any more. @threads any, also the I/O thread.
  void end() noexcept;

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

  boost::asio::io_context io{1};
  /// Rung for what is in the queue of `io`: its own descriptor is not to be had.
  Bell bell;
  TransportSetup setup;
  /// The transport is being closed: nothing is delivered any more, and no frames are read.
  std::atomic<bool> closing{false};
  /// Messages that may still be delivered in this `run_until`; the I/O thread's.
  std::size_t messages_left = std::numeric_limits<std::size_t>::max();

 private:
  bool enter();
  void leave();
  std::size_t run_events(time_point until, std::size_t limit);

  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  unique_function<void()> release_;
  std::atomic<bool> wake_posted_{false};
  std::size_t wakes_ = 0;  // handlers that were only wakes; the I/O thread's

  std::mutex life_;  // guards the next three
  bool is_inside_ = false;
  std::thread::id io_thread_;  // while inside
  bool has_ended_ = false;
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/io_loop.ipp>
#endif
