#pragma once
#include <memory>

namespace distgrad {

/// What a thread had given to devices at one moment.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
  /// What the calling thread gives to devices from now on starts after the marked work. The thread
  /// does not wait. @threads safe: shared object.
  virtual void follow() = 0;
};

/// Carries the order of work on devices from thread to thread, for rooms that do not know what a
/// stream is. @threads safe: shared object.
class DeviceOrder {
 public:
  virtual ~DeviceOrder() = default;
  /// What the calling thread gave to its current streams so far.
  virtual std::shared_ptr<DeviceMark> mark() = 0;
};

}  // namespace distgrad
