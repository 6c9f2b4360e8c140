#pragma once
#include <cstddef>
#include <memory>

#include <c10/core/Event.h>

#include <distgrad/config.hpp>
#include <distgrad/queue/concept.hpp>
#include <distgrad/queue/cpu_queues_options.hpp>
#include <distgrad/queue/stream_order.hpp>

namespace distgrad {

namespace detail {
class CpuPool;
}

/// A pool of threads for user functions and nodes on the CPU. A thread that waits inside a task
/// (in a `BlockingRegion`) is replaced for that time, so that nested calls never run out of
/// threads; threads start when there is work for them, and sleep without a timer when there is
/// none.
/// @threads safe: shared object.
class CpuQueues {
 public:
  using contract = queue_v1;
  using Options = CpuQueuesOptions;
  using Event = c10::Event;
  static constexpr bool is_inline = false;

  CpuQueues() : CpuQueues(Options()) {}
  /// @throws Error `errc::invalid_argument` when `threads` is zero or above `max_threads`;
  ///   `errc::pool_exhausted` when the system gives no thread.
  explicit CpuQueues(Options options);
  ~CpuQueues();
  CpuQueues(CpuQueues const&) = delete;
  CpuQueues& operator=(CpuQueues const&) = delete;

  /// Adds a task; after `stop` it is dropped.
  /// @throws Error `errc::not_supported` when `device` is not the CPU.
  void submit(c10::Device device, ReadyTask task);
  /// Nothing: the pool runs the tasks.
  std::size_t poll() { return 0; }
  /// Nothing: nobody polls.
  void on_submit(unique_function<void()>) {}
  /// Drops the tasks that did not start and waits until the running ones have finished. Inside a
  /// task it waits for the other tasks only.
  void stop() noexcept;

  /// None: the CPU's work is done when its call returns.
  std::span<c10::Stream const> streams() const { return {}; }
  Event record(c10::Stream stream) { return record_event(stream); }
  void wait(c10::Stream stream, Event& event) { block_stream(stream, event); }
  void keep(c10::DataPtr const& memory, c10::Stream stream) { keep_memory(memory, stream); }

  /// Threads that exist now, for tests and metrics.
  std::size_t thread_count() const;

 private:
  std::shared_ptr<detail::CpuPool> pool_;
};

static_assert(QueuePolicy<CpuQueues>);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/queue/impl/cpu_queues.ipp>
#endif
