#pragma once
#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <c10/core/Event.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <distgrad/core/blocking.hpp>

// What orders work of devices, by libtorch's virtual guard alone.
namespace distgrad::detail {

/// The calling thread's current one.
inline c10::Stream stream_in_use(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

inline c10::Event event_on(c10::Stream stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

/// Memory of `storage` may still be in use on `stream` when its owner lets go of it.
inline void record_use(c10::Storage const& storage, c10::Stream stream) {
  c10::impl::VirtualGuardImpl(stream.device_type())
      .recordDataPtrOnStream(storage.data_ptr(), stream);
}

/// The host waits for an event of `stream`; with libtorch 1.13, which cannot, for all of it.
template <class Event>
void await(Event const& event, c10::Stream stream) {
  if (event.query()) return;
  BlockingRegion const region;
  if constexpr (requires { event.synchronize(); }) {
    event.synchronize();
  } else {
    c10::impl::VirtualGuardImpl(stream.device_type()).synchronizeStream(stream);
  }
}

}  // namespace distgrad::detail
