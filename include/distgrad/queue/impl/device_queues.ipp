#pragma once
#include <algorithm>
#include <utility>

#include <distgrad/core/error.hpp>
#include <distgrad/queue/device_queues.hpp>
#include <distgrad/queue/stream_scope.hpp>

namespace distgrad {
namespace detail {

[[noreturn]] inline void cannot_serve(std::string const& why) {
  throw Error(errc::invalid_argument, "DeviceQueues::Options::devices: " + why);
}

inline std::vector<c10::Stream> pool_streams(std::vector<c10::Device> const& devices) {
  if (devices.empty()) cannot_serve("name at least one device");
  std::vector<c10::Stream> streams;
  for (auto const& device : devices) {
    auto const type = device.type();
    bool const is_known = !device.is_cpu() && c10::impl::hasDeviceGuardImpl(type);
    auto const count = is_known ? c10::impl::VirtualGuardImpl(type).deviceCount() : 0;
    if (!device.has_index() || device.index() >= count) {
      cannot_serve("there is no " + device.str() + " among " + std::to_string(count) +
                   " devices of that type");
    }
    if (std::ranges::count(devices, device) != 1) cannot_serve(device.str() + " is named twice");
    if (type != devices.front().type()) cannot_serve("they are of several types");
    streams.push_back(c10::impl::VirtualGuardImpl(type).getStreamFromGlobalPool(device));
  }
  return streams;
}

}  // namespace detail

DISTGRAD_DECL DeviceQueues::DeviceQueues(Options options)
    : DeviceQueues(options, detail::pool_streams(options.devices)) {}

DISTGRAD_DECL DeviceQueues::DeviceQueues(Options const& options, std::vector<c10::Stream> streams)
    : streams_(std::move(streams)), threads_(options) {}

DISTGRAD_DECL void DeviceQueues::submit(c10::Device device, ReadyTask task) {
  auto const own = std::ranges::find(streams_, device, &c10::Stream::device);
  if (!device.is_cpu() && own == streams_.end()) {
    throw Error(errc::not_supported, "these queues do not serve device " + device.str());
  }
  auto const* const first = device.is_cpu() ? nullptr : &*own;
  auto run = [this, first, run = std::move(task.run)]() mutable {
    StreamScope const all(streams_);
    if (!first) return run();
    StreamScope const device_of_task(*first);
    run();
  };
  threads_.submit(c10::DeviceType::CPU, {task.priority, std::move(run)});
}

}  // namespace distgrad
