#pragma once
#include <utility>
#include <vector>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <distgrad/core/error.hpp>
#include <distgrad/queue/device_queues.hpp>

namespace distgrad {

/// What `CudaQueues` is made with.
struct CudaQueuesOptions : CpuQueuesOptions {
  /// The devices' numbers; empty: all that are visible.
  std::vector<c10::DeviceIndex> devices;
  /// Whether the device prefers work of these queues to that of other streams.
  bool high_priority = false;
};

/// `DeviceQueues` on CUDA: a stream of each device, from libtorch's pool. Needs `distgrad::cuda`.
///
///     using Engine = distgrad::DistEngine<distgrad::TcpTransport, distgrad::CudaQueues>;
class CudaQueues : public DeviceQueues {
 public:
  using Options = CudaQueuesOptions;

  /// @throws Error `errc::invalid_argument` when a device, or every device, is missing; as
  ///   `CpuQueues`.
  explicit CudaQueues(Options const& options)
      : DeviceQueues(device_options(options), pool_streams(options)) {}

 private:
  static DeviceQueuesOptions device_options(Options const& options) {
    DeviceQueuesOptions of_devices;
    static_cast<CpuQueuesOptions&>(of_devices) = options;
    return of_devices;
  }
  static std::vector<c10::Stream> pool_streams(Options const& options) {
    auto const count = c10::cuda::device_count();
    auto devices = options.devices;
    for (c10::DeviceIndex i = 0; options.devices.empty() && i < count; ++i) devices.push_back(i);
    if (devices.empty()) {
      throw Error(errc::invalid_argument, "CudaQueues: no CUDA device is visible");
    }
    std::vector<c10::Stream> streams;
    for (auto const device : devices) {
      if (device < 0 || device >= count) {
        throw Error(errc::invalid_argument, "CudaQueues::Options::devices: there is no device " +
                                                std::to_string(device) + " among " +
                                                std::to_string(count));
      }
      streams.push_back(c10::cuda::getStreamFromPool(options.high_priority, device).unwrap());
    }
    return streams;
  }
};

static_assert(QueuePolicy<CudaQueues>);

}  // namespace distgrad
