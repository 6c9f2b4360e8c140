#pragma once
#include <poll.h>

#include <algorithm>
#include <exception>

#include <distgrad/transport/detail/io_loop.hpp>

namespace distgrad::detail {

DISTGRAD_DECL bool IoLoop::enter() {
  std::lock_guard lock(life_);
  if (has_ended_ || is_inside_) return false;
  is_inside_ = true;
  io_thread_ = std::this_thread::get_id();
  return true;
}

DISTGRAD_DECL void IoLoop::leave() {
  std::lock_guard lock(life_);
  is_inside_ = false;
  if (has_ended_) release_();
}

DISTGRAD_DECL std::size_t IoLoop::run_until(time_point until, std::size_t limit) {
  if (!enter()) {  // it has ended, or is ended by a thread that turns it: no caller shall spin
    ::poll(nullptr, 0, 1);
    return 0;
  }
  auto const handled = run_events(until, limit);
  leave();
  return handled;
}

/// An event brings any number of messages: those beyond the limit stay where they are.
DISTGRAD_DECL std::size_t IoLoop::run_events(time_point until, std::size_t limit) {
  wakes_ = 0;
  messages_left = limit;
  bell.silence();
  bool const sleeps = limit != 0 && until > Clock::now();
  auto handled = sleeps ? io.run_one_until(until) : 0;
  // A wake alone is no event: others may be ready with it.
  auto const goes_on = [&] {
    return (!sleeps || handled == wakes_) && handled - wakes_ < limit && messages_left != 0;
  };
  bool is_drained = false;
  while (!is_drained && goes_on()) {
    is_drained = io.poll_one() == 0;
    if (!is_drained) ++handled;
  }
  // What Asio has queued shows on no socket any more: it has read the bytes.
  if (!is_drained) bell.ring();
  return std::max(handled - wakes_, limit - messages_left);
}

DISTGRAD_DECL void IoLoop::wake() noexcept {
  // One in the queue is enough; but that one may be further back than the limit of a run_until.
  if (wake_posted_.exchange(true)) return bell.ring();
  DISTGRAD_TRY {
    post([this] {
      wake_posted_ = false;
      ++wakes_;
    });
  }
  DISTGRAD_CATCH(std::exception const&) {  // no memory: the next event wakes
    wake_posted_ = false;
  }
}

DISTGRAD_DECL void IoLoop::turn_once() noexcept {
  bool is_nested = false;
  {
    std::lock_guard lock(life_);
    is_nested = is_inside_ && io_thread_ == std::this_thread::get_id();
  }
  if (!is_nested && !enter()) return;
  io.poll();
  if (!is_nested) leave();
}

DISTGRAD_DECL void IoLoop::end() noexcept {
  std::lock_guard lock(life_);
  has_ended_ = true;
  is_inside_ ? io.stop() : release_();
}

}  // namespace distgrad::detail
