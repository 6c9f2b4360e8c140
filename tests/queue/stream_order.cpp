#include <distgrad/queue/stream_order.hpp>
//
#include <doctest/doctest.h>

namespace stream_order_tests {

TEST_CASE("on the CPU an event is done at once and never recorded") {
  c10::Stream const stream(c10::Stream::DEFAULT, c10::Device(c10::DeviceType::CPU));
  auto event = distgrad::record_event(stream);
  CHECK(!event.was_marked_for_recording());
  CHECK(event.query());
  distgrad::block_stream(stream, event);
}

}  // namespace stream_order_tests
