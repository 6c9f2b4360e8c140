#pragma once
// Workers with queues on simulated devices, for tests of the order of streams. What the queues do
// to order them can be left out, to see whether it is missed.

#include "rig.hpp"

#include <atomic>

#include <distgrad/queue/device_queues.hpp>
#include <distgrad/queue/stream_scope.hpp>
#include <distgrad/testing/simulated_device.hpp>

namespace rig {

/// What `StreamQueues` leave out.
enum class Missing { nothing, waits, keeps, common_stream };

/// The queues of both simulated devices.
class StreamQueues : public distgrad::DeviceQueues {
 public:
  struct Options : distgrad::CpuQueuesOptions {};
  explicit StreamQueues(Options const& options) : DeviceQueues(with_devices(options)) {}

  static inline std::atomic<Missing> missing{Missing::nothing};
  static inline std::atomic<int> waits{0}, keeps{0};

  void submit(c10::Device device, distgrad::ReadyTask task) {
    if (missing == Missing::common_stream) {
      task.run = [run = std::move(task.run)]() mutable {
        c10::Device const first(distgrad::testing::simulated, 0);
        c10::impl::VirtualGuardImpl const guard(first.type());
        distgrad::StreamScope const own(guard.getStreamFromGlobalPool(first));
        run();
      };
    }
    DeviceQueues::submit(device, std::move(task));
  }
  void wait(c10::Stream stream, Event& event) {
    ++waits;
    if (missing != Missing::waits) DeviceQueues::wait(stream, event);
  }
  void keep(c10::DataPtr const& memory, c10::Stream stream) {
    ++keeps;
    if (missing != Missing::keeps) DeviceQueues::keep(memory, stream);
  }
  static c10::Allocator* pinned_allocator(c10::DeviceType) {
    return &distgrad::testing::SimulatedDevices::pinned_allocator();
  }

 private:
  static distgrad::DeviceQueuesOptions with_devices(Options const& options) {
    distgrad::testing::SimulatedDevices::install();
    distgrad::DeviceQueuesOptions all;
    static_cast<distgrad::CpuQueuesOptions&>(all) = options;
    all.devices = {{distgrad::testing::simulated, 0}, {distgrad::testing::simulated, 1}};
    return all;
  }
};

/// Leaves something out for a scope.
class Without {
 public:
  explicit Without(Missing what) { StreamQueues::missing = what; }
  ~Without() { StreamQueues::missing = Missing::nothing; }
};

using DeviceEngine = distgrad::DistEngine<distgrad::LoopbackTransport, StreamQueues>;

/// Each device belongs to the one of the same number.
template <std::size_t N>
struct DeviceCluster : distgrad::LocalCluster<N, DeviceEngine> {
  DeviceCluster() : distgrad::LocalCluster<N, DeviceEngine>(with_maps()) {}

 private:
  static DeviceEngine::Options with_maps() {
    auto all = options<DeviceEngine>();
    for (std::size_t i = 0; i < N; ++i) {
      all.device_maps["worker" + std::to_string(i)] = {{"privateuseone:0", "privateuseone:0"},
                                                       {"privateuseone:1", "privateuseone:1"}};
    }
    return all;
  }
};

}  // namespace rig
