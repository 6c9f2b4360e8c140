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

/// Sends the tensors of devices by way of the host, to the device of the same number.
class StagedSerializer {
 public:
  using contract = distgrad::serializer_v1;
  struct Options {};
  explicit StagedSerializer(Options) {}

  void pack(distgrad::Writer& out, std::vector<distgrad::Buffer>& buffers,
            std::span<at::Tensor const> tensors) const {
    std::vector<at::Tensor> on_host;
    for (auto const& tensor : tensors) {
      on_host.push_back(is_away(tensor)
                            ? tensor.detach().cpu().set_requires_grad(tensor.requires_grad())
                            : tensor);
    }
    distgrad::pack_tensors(out, buffers, on_host);
    for (auto const& tensor : tensors) {
      out.number(std::int8_t(is_away(tensor) ? tensor.device().index() : -1));
    }
  }
  distgrad::ReceivedTensors unpack(distgrad::Reader& in,
                                   std::span<distgrad::Buffer const> buffers) const {
    auto received = distgrad::unpack_tensors(in, buffers);
    for (auto& tensor : received.tensors) {
      auto const index = in.number<std::int8_t>();
      if (index >= 0) tensor = tensor.to(c10::Device(distgrad::testing::simulated, index));
    }
    return received;
  }
  std::vector<distgrad::Buffer> landing(std::span<std::uint64_t const> lengths) const {
    return distgrad::allocate_landings(lengths);
  }

 private:
  static bool is_away(at::Tensor const& tensor) {
    return tensor.defined() && !tensor.device().is_cpu();
  }
};

using DeviceEngine =
    distgrad::DistEngine<distgrad::LoopbackTransport, StreamQueues, StagedSerializer>;

template <std::size_t N>
struct DeviceCluster : distgrad::LocalCluster<N, DeviceEngine> {
  DeviceCluster() : distgrad::LocalCluster<N, DeviceEngine>(options<DeviceEngine>()) {}
};

}  // namespace rig
