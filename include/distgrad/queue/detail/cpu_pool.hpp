#pragma once
#include <condition_variable>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include <distgrad/core/blocking.hpp>
#include <distgrad/queue/cpu_queues_options.hpp>
#include <distgrad/queue/detail/ready_heap.hpp>

namespace distgrad::detail {

// Every thread of the pool is in one of three states:
//
//   idle     waits for a task, or has just been started
//   active   runs a task
//   blocked  is inside a BlockingRegion of its task
//
//   idle -> active      a task is ready and fewer than `options.threads` are active
//   active -> idle      its task is done
//   active -> blocked   another thread must be there to take tasks: an idle or active one, or a
//                       new one; if no new one can be had, the region throws
//   blocked -> active   at once, even if more than `options.threads` are active then; they shrink
//                       when tasks end
//   idle -> gone        there have been more idle threads than `options.threads` for a while
//
// So as long as tasks are ready, somebody who is not blocked takes them.
//
// Each thread holds the pool, so that a task may destroy the queues it runs on.
class CpuPool final : public BlockingObserver, public std::enable_shared_from_this<CpuPool> {
 public:
  explicit CpuPool(CpuQueuesOptions const& options) : options_(options) {}

  void start();
  void submit(ReadyTask task);
  void stop() noexcept;
  // The last call on a stopped pool.
  void release_threads() noexcept;
  std::size_t thread_count() const;

  void blocked() override;
  void unblocked() noexcept override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Thread {
    std::thread handle;
    bool is_done = false;
  };

  // The functions that take a lock need it held; they return with it held.
  void work(Thread& self);
  bool wait_for_task(Lock& lock);
  void leave(Thread& self, Lock& lock);
  bool start_thread(Lock const&);
  void use_more_threads(Lock const& lock);
  /// @return whether a thread shall be told that a task is ready.
  bool find_thread(Lock const& lock);
  bool may_start_task(Lock const&) const { return !ready_.empty() && active_ < options_.threads; }
  std::size_t threads(Lock const&) const { return idle_ + active_ + blocked_; }
  bool is_on_own_thread() const { return current() == this; }
  static CpuPool*& current() noexcept;

  CpuQueuesOptions const options_;
  mutable std::mutex mutex_;
  std::condition_variable task_or_stop_, thread_left_;
  ReadyHeap ready_;
  std::list<Thread> threads_;
  std::size_t idle_ = 0, active_ = 0, blocked_ = 0;
  // Threads of this pool that are inside stop().
  std::size_t stopping_ = 0;
  bool stopped_ = false;
};

}  // namespace distgrad::detail
