#pragma once
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

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

}  // namespace distgrad
