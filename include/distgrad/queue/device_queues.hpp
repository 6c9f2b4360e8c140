#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include <c10/core/Event.h>

#include <distgrad/config.hpp>
#include <distgrad/queue/concept.hpp>
#include <distgrad/queue/cpu_queues.hpp>
#include <distgrad/queue/stream_order.hpp>

namespace distgrad {

/// What `DeviceQueues` is made with.
struct DeviceQueuesOptions : CpuQueuesOptions {
  /// The devices the queues serve, each with its index, all of one type.
  std::vector<c10::Device> devices;
};

/// Queues for devices that work asynchronously, on libtorch's streams and events alone: for every
/// device type that libtorch has a guard for. `CudaQueues` is the same for CUDA.
///
/// Tasks run on the threads of a `CpuQueues`, with one stream of each device current, which these
/// queues took from libtorch's pool. All tasks share it, so the work of a task that begins after
/// another one ended comes after that one's: functions that share tensors need no streams of their
/// own thought. A function that uses other streams leaves its results on the current ones, as
/// everywhere in libtorch.
/// @threads safe: shared object.
class DeviceQueues {
 public:
  using contract = queue_v1;
  using Options = DeviceQueuesOptions;
  using Event = c10::Event;
  static constexpr bool is_inline = false;

  /// @throws Error `errc::invalid_argument` when there is no such device, or none is given; as
  ///   `CpuQueues`.
  explicit DeviceQueues(Options options);
  /// On streams of the caller's choice, one per device.
  DeviceQueues(Options const& options, std::vector<c10::Stream> streams);

  /// Adds a task for the CPU or one of the devices, which is the current one while it runs.
  /// @throws Error `errc::not_supported` when `device` is another.
  void submit(c10::Device device, ReadyTask task);
  /// Nothing: the tasks have threads.
  std::size_t poll() { return 0; }
  /// Nothing: nobody polls.
  void on_submit(unique_function<void()>) {}
  /// As `CpuQueues::stop`. Does not wait for devices.
  void stop() noexcept { threads_.stop(); }

  std::span<c10::Stream const> streams() const { return streams_; }
  Event record(c10::Stream stream) { return record_event(stream); }
  void wait(c10::Stream stream, Event& event) { block_stream(stream, event); }
  void keep(c10::DataPtr const& memory, c10::Stream stream) { keep_memory(memory, stream); }

 private:
  std::vector<c10::Stream> streams_;
  CpuQueues threads_;
};

static_assert(QueuePolicy<DeviceQueues>);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/queue/impl/device_queues.ipp>
#endif
