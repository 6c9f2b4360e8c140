#pragma once
#include <algorithm>
#include <utility>

#include <distgrad/queue/inline_queues.hpp>

namespace distgrad {

DISTGRAD_DECL void InlineQueues::submit(c10::Device, ReadyTask task) {
  {
    std::lock_guard const lock(mutex_);
    if (stopped_) return;  // `task` is destroyed after the lock is released
    ready_.push(std::move(task));
  }
  if (wake_) wake_();
}

DISTGRAD_DECL bool InlineQueues::run_one() {
  ReadyTask task;
  {
    std::lock_guard const lock(mutex_);
    if (ready_.empty()) return false;
    task = ready_.pop();
  }
  detail::run_task(std::move(task));
  return true;
}

DISTGRAD_DECL std::size_t InlineQueues::poll(std::size_t limit) {
  {
    std::lock_guard const lock(mutex_);
    limit = std::min(limit, ready_.size());
  }
  // Not until the queue is empty: tasks that submit tasks would keep the caller here for ever.
  std::size_t ran = 0;
  while (ran < limit && run_one()) ++ran;
  return ran;
}

DISTGRAD_DECL void InlineQueues::stop() noexcept {
  detail::ReadyHeap dropped;  // destroyed after the lock is released
  std::lock_guard const lock(mutex_);
  stopped_ = true;
  std::swap(dropped, ready_);
}

}  // namespace distgrad
