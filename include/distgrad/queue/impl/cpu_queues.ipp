#pragma once
#include <algorithm>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

#include <distgrad/core/error.hpp>
#include <distgrad/queue/cpu_queues.hpp>
#include <distgrad/queue/detail/cpu_pool.hpp>

namespace distgrad {
namespace detail {

DISTGRAD_DECL CpuPool*& CpuPool::current() noexcept {
  thread_local CpuPool* pool = nullptr;
  return pool;
}

DISTGRAD_DECL void CpuPool::start() {
  Lock const lock(mutex_);
  if (!start_thread(lock)) {
    throw Error(errc::pool_exhausted, "the system gives no thread for the compute pool");
  }
}

DISTGRAD_DECL void CpuPool::submit(ReadyTask task) {
  {
    Lock const lock(mutex_);
    if (stopped_) return;  // `task` belongs to the caller and dies after the lock
    ready_.push(std::move(task));
    if (!find_thread(lock)) return;
  }
  task_or_stop_.notify_one();  // without the lock, or the thread wakes only to wait for it
}

DISTGRAD_DECL void CpuPool::use_more_threads(Lock const& lock) {
  if (find_thread(lock)) task_or_stop_.notify_one();
}

DISTGRAD_DECL bool CpuPool::find_thread(Lock const& lock) {
  if (!may_start_task(lock)) return false;
  auto const wanted = std::min(ready_.size(), options_.threads - active_);
  // Without a new thread the task waits for one that is there, which is slower but no failure.
  if (wanted > idle_) start_thread(lock);
  return true;
}

DISTGRAD_DECL bool CpuPool::start_thread(Lock const& lock) {
  if (threads(lock) >= options_.max_threads) return false;
  auto& thread = threads_.emplace_back();
  try {
    thread.handle = std::thread([pool = shared_from_this(), &thread] { pool->work(thread); });
  } catch (std::system_error const&) {
    threads_.pop_back();
    return false;
  }
  ++idle_;
  return true;
}

DISTGRAD_DECL void CpuPool::work(Thread& self) {
  current() = this;
  BlockingObserverScope const observe(this);
  Lock lock(mutex_);
  while (wait_for_task(lock)) {
    auto task = ready_.pop();
    --idle_, ++active_;
    lock.unlock();
    run_task(std::move(task));
    lock.lock();
    --active_, ++idle_;
  }
  leave(self, lock);
}

DISTGRAD_DECL bool CpuPool::wait_for_task(Lock& lock) {
  auto const must_wake = [&] { return stopped_ || may_start_task(lock); };
  while (!must_wake()) {
    if (idle_ <= options_.threads) {
      task_or_stop_.wait(lock);
    } else if (!task_or_stop_.wait_for(lock, options_.spare_thread_timeout, must_wake) &&
               idle_ > options_.threads) {
      return false;
    }
  }
  return !stopped_;
}

DISTGRAD_DECL void CpuPool::leave(Thread& self, Lock& lock) {
  // Each thread that leaves joins those that left before, so that handles do not pile up.
  std::list<Thread> left;
  for (auto it = threads_.begin(); it != threads_.end();) {
    auto const next = std::next(it);
    if (it->is_done) left.splice(left.end(), threads_, it);
    it = next;
  }
  --idle_;
  self.is_done = true;
  thread_left_.notify_all();
  lock.unlock();
  for (auto& thread : left) thread.handle.join();
}

DISTGRAD_DECL void CpuPool::blocked() {
  Lock const lock(mutex_);
  --active_, ++blocked_;
  if (stopped_) return;
  if (idle_ + active_ == 0 && !start_thread(lock)) {
    ++active_, --blocked_;
    throw Error(errc::pool_exhausted,
                "all " + std::to_string(threads(lock)) +
                    " threads of the compute pool wait inside handlers; nest fewer calls, or raise "
                    "CpuQueues::Options::max_threads");
  }
  use_more_threads(lock);
}

DISTGRAD_DECL void CpuPool::unblocked() noexcept {
  Lock const lock(mutex_);
  --blocked_, ++active_;
}

DISTGRAD_DECL void CpuPool::stop() noexcept {
  ReadyHeap dropped;
  Lock lock(mutex_);
  stopped_ = true;
  std::swap(dropped, ready_);
  task_or_stop_.notify_all();
  // Before waiting, because a running task may wait for what a dropped one would have done.
  lock.unlock();
  dropped = {};
  lock.lock();
  std::size_t const own = is_on_own_thread() ? 1 : 0;
  stopping_ += own;
  thread_left_.notify_all();
  thread_left_.wait(lock, [&] { return threads(lock) <= stopping_; });
  stopping_ -= own;
}

DISTGRAD_DECL void CpuPool::release_threads() noexcept {
  std::list<Thread> others;
  {
    Lock const lock(mutex_);
    others.swap(threads_);
    auto const own = std::find_if(others.begin(), others.end(), [](Thread const& thread) {
      return thread.handle.get_id() == std::this_thread::get_id();
    });
    if (own != others.end()) {
      own->handle.detach();
      threads_.splice(threads_.end(), others, own);  // it is still going to leave()
    }
  }
  for (auto& thread : others) thread.handle.join();
}

DISTGRAD_DECL std::size_t CpuPool::thread_count() const {
  Lock const lock(mutex_);
  return threads(lock);
}

inline CpuQueuesOptions const& checked(CpuQueuesOptions const& options) {
  if (options.threads == 0 || options.threads > options.max_threads) {
    throw Error(errc::invalid_argument,
                "CpuQueues needs 1 <= threads <= max_threads, not threads = " +
                    std::to_string(options.threads) +
                    ", max_threads = " + std::to_string(options.max_threads));
  }
  return options;
}

}  // namespace detail

DISTGRAD_DECL CpuQueues::CpuQueues(Options options)
    : pool_(std::make_shared<detail::CpuPool>(detail::checked(options))) {
  pool_->start();
}

DISTGRAD_DECL CpuQueues::~CpuQueues() {
  pool_->stop();
  pool_->release_threads();
}

DISTGRAD_DECL void CpuQueues::submit(c10::Device device, ReadyTask task) {
  if (!device.is_cpu()) {
    throw Error(errc::not_supported,
                "CpuQueues runs work for the CPU only, not for device " + device.str());
  }
  pool_->submit(std::move(task));
}

DISTGRAD_DECL void CpuQueues::stop() noexcept { pool_->stop(); }

DISTGRAD_DECL std::size_t CpuQueues::thread_count() const { return pool_->thread_count(); }

}  // namespace distgrad
