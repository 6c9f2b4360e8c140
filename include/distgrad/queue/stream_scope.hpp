#pragma once
#include <iterator>
#include <span>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/SmallVector.h>

namespace distgrad {

/// Makes streams, at most one of each device, the calling thread's current ones, and the device of
/// the first the current device. Afterwards all is as before.
class StreamScope {
 public:
  explicit StreamScope(std::span<c10::Stream const> streams) {
    for (auto const& stream : streams) enter(stream);
    if (!streams.empty()) set_device(streams.front().device());
  }
  explicit StreamScope(c10::Stream stream) : StreamScope({&stream, 1}) {}
  ~StreamScope() {
    for (auto at = before_.rbegin(); at != before_.rend(); ++at) {
      guard(at->device()).exchangeStream(*at);
    }
    if (!before_.empty()) guard(device_).setDevice(device_);
  }
  StreamScope(StreamScope const&) = delete;
  StreamScope& operator=(StreamScope const&) = delete;

 private:
  static c10::impl::VirtualGuardImpl guard(c10::Device device) {
    return c10::impl::VirtualGuardImpl(device.type());
  }
  void enter(c10::Stream stream) {
    if (stream.device().is_cpu()) return;
    before_.push_back(guard(stream.device()).exchangeStream(stream));
  }
  void set_device(c10::Device device) {
    if (!before_.empty()) device_ = guard(device).exchangeDevice(device);
  }

  c10::SmallVector<c10::Stream, 2> before_;
  c10::Device device_ = c10::DeviceType::CPU;
};

}  // namespace distgrad
