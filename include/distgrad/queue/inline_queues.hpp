#pragma once
#include <cstddef>
#include <limits>
#include <mutex>

#include <c10/core/Event.h>

#include <distgrad/config.hpp>
#include <distgrad/queue/concept.hpp>
#include <distgrad/queue/detail/ready_heap.hpp>
#include <distgrad/queue/stream_order.hpp>

namespace distgrad {

/// Queues without a thread: the program runs what is ready by calling `poll`. A task may call
/// `poll` itself, which is how a wait inside a handler lets others go on.
/// @threads safe: shared object; `on_submit` before the first `submit`.
class InlineQueues {
 public:
  using contract = queue_v1;
  struct Options {};
  using Event = c10::Event;
  static constexpr bool is_inline = true;

  explicit InlineQueues(Options = {}) {}
  ~InlineQueues() { stop(); }
  InlineQueues(InlineQueues const&) = delete;
  InlineQueues& operator=(InlineQueues const&) = delete;

  /// Adds a task; after `stop` it is dropped.
  void submit(c10::Device device, ReadyTask task);
  /// Runs as many tasks as are ready now, but at most `limit`, on the calling thread. @return how
  /// many it ran.
  std::size_t poll(std::size_t limit = std::numeric_limits<std::size_t>::max());
  /// `wake` is called after every `submit`, on the submitting thread: it ends the sleep of
  /// whoever polls. It must not throw and may be called on several threads at once.
  void on_submit(unique_function<void()> wake) { wake_ = std::move(wake); }
  /// Drops the tasks that did not start; a running one finishes.
  void stop() noexcept;

  /// None: the CPU's work is done when its call returns.
  std::span<c10::Stream const> streams() const { return {}; }
  Event record(c10::Stream stream) { return record_event(stream); }
  void wait(c10::Stream stream, Event& event) { block_stream(stream, event); }
  void keep(c10::DataPtr const& memory, c10::Stream stream) { keep_memory(memory, stream); }

 private:
  bool run_one();

  std::mutex mutex_;
  detail::ReadyHeap ready_;
  bool stopped_ = false;
  unique_function<void()> wake_;
};

static_assert(QueuePolicy<InlineQueues>);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/queue/impl/inline_queues.ipp>
#endif
