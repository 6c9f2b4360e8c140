#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <distgrad/core/device_order.hpp>

namespace distgrad {

/// Marks the work given to `stream` so far. On the CPU, whose work is done when its call returns,
/// the event is never recorded and waiting for it is nothing.
inline c10::Event record_event(c10::Stream stream) {
  c10::Event event(stream.device_type());
  if (!stream.device().is_cpu()) event.record(stream);
  return event;
}

/// Makes work given to `stream` from now on wait for `event`.
inline void block_stream(c10::Stream stream, c10::Event& event) {
  if (event.was_marked_for_recording()) event.block(stream);
}

/// Says that work given to `stream` so far uses `memory`: freed, it is not used anew before that
/// work is done.
inline void keep_memory(c10::DataPtr const& memory, c10::Stream stream) {
  if (stream.device().is_cpu()) return;
  c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(memory, stream);
}

/// The stream to which the calling thread gives work for `device`.
inline c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// What orders the work of an engine on its devices: its queues, whatever policy they are of.
///
/// The convention everywhere in the library: *a tensor that is handed on lives on the current
/// stream of its own device*, of the thread that hands it on, at that moment. Who takes it over on
/// another stream orders that one after, and keeps the tensor's memory for it.
/// @threads safe: shared object.
class StreamOrder : public DeviceOrder {
 public:
  /// One per device that the engine serves; they are current where the engine runs something on a
  /// thread of its own.
  virtual std::span<c10::Stream const> streams() const = 0;
  /// Work given to `after` from now on starts after what `before` was given so far.
  virtual void order(c10::Stream before, c10::Stream after) = 0;
  /// `memory` is used by work given to `stream` so far.
  virtual void keep(c10::DataPtr const& memory, c10::Stream stream) = 0;
};

/// The streams that used something which several threads share: a map of gradients, a remote value.
/// @threads a shared object needs the lock of what is shared.
class StreamUses {
 public:
  /// The calling thread is about to use it: its current streams go on after all other uses.
  void enter(StreamOrder& order) {
    for (auto const& own : order.streams()) {
      auto const now = current_stream(own.device());
      for (auto const& before : streams_) {
        if (before.device() == now.device() && before != now) order.order(before, now);
      }
      add(now);
    }
  }
  /// It is about to go: whatever comes to have its memory on one of the streams comes after all.
  void leave(StreamOrder& order) {
    for (auto const& before : streams_) {
      for (auto const& after : streams_) {
        if (before.device() == after.device() && before != after) order.order(before, after);
      }
    }
  }
  /// `stream` uses it, and nothing has to be ordered now.
  void add(c10::Stream stream) {
    if (std::ranges::find(streams_, stream) == streams_.end()) streams_.push_back(stream);
  }

 private:
  std::vector<c10::Stream> streams_;
};

}  // namespace distgrad
