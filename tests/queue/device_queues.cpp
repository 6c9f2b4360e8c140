#include <distgrad/queue/device_queues.hpp>
//
#include <vector>

#include <doctest/doctest.h>

#include <distgrad/core/error.hpp>
#include <distgrad/testing/queue_conformance.hpp>
#include <distgrad/testing/simulated_device.hpp>

namespace device_queues_tests {

namespace {

using distgrad::DeviceQueues;
using distgrad::testing::Progress;
using distgrad::testing::simulated;
using distgrad::testing::SimulatedDevices;

c10::Device const first(simulated, 0), second(simulated, 1);
DeviceQueues::Options options(std::vector<c10::Device> devices) {
  DeviceQueues::Options options;
  options.devices = std::move(devices);
  return options;
}

TEST_CASE("device queues refuse devices that they cannot serve, and say why") {
  SimulatedDevices const simulation;
  auto const text_of = [](std::vector<c10::Device> devices) -> std::string {
    try {
      DeviceQueues const queues(options(std::move(devices)));
    } catch (distgrad::Error const& e) {
      CHECK(e.code() == distgrad::errc::invalid_argument);
      return e.text();
    }
    return "accepted";
  };
  auto const says = [&](std::vector<c10::Device> devices, char const* part) {
    auto const text = text_of(std::move(devices));
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  says({}, "at least one");
  says({{simulated, 2}}, "there is no privateuseone:2 among 2");
  says({c10::Device(simulated)}, "there is no privateuseone");
  says({c10::DeviceType::CPU}, "there is no cpu");
  says({{c10::DeviceType::XPU, 0}}, "there is no xpu:0 among 0");
  says({first, first}, "twice");
  CHECK(text_of({first, second}) == "accepted");
}

TEST_CASE("device queues refuse work for a device that they do not serve") {
  SimulatedDevices const simulation;
  DeviceQueues queues(options({second}));
  try {
    queues.submit(first, {0, [] {}});
    FAIL("accepted");
  } catch (distgrad::Error const& e) {
    CHECK(e.code() == distgrad::errc::not_supported);
    CHECK(e.text().find("privateuseone:0") != std::string::npos);
  }
}

TEST_CASE("a task's device is the current one, and the thread is left as it was") {
  SimulatedDevices const simulation;
  DeviceQueues queues(options({first, second}));
  Progress done;
  std::vector<c10::Device> seen;
  int tasks = 0;
  c10::impl::VirtualGuardImpl const guard(simulated);
  for (auto const device : {second, c10::Device(c10::DeviceType::CPU), first}) {
    queues.submit(device, {0, [&] {
                             seen.push_back(guard.getDevice());
                             guard.exchangeStream(guard.getStreamFromGlobalPool(second));
                             done.step();
                           }});
    REQUIRE(done.await(++tasks));
  }
  CHECK(seen == std::vector{second, first, first});
  queues.stop();
  CHECK(guard.getDevice() == first);
}

TEST_CASE("kept memory waits for the stream that uses it") {
  int spoilt[2] = {0, 0};
  for (bool const keeps : {false, true}) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      SimulatedDevices const simulation(seed);
      DeviceQueues queues(options({first}));
      auto memory = c10::GetAllocator(simulated)->allocate(1);
      auto* const byte = static_cast<unsigned char*>(memory.get());
      auto const other = queues.streams()[0];
      SimulatedDevices::give(distgrad::current_stream(first), [byte] { *byte = 7; });
      auto event = queues.record(distgrad::current_stream(first));
      queues.wait(other, event);
      unsigned char seen = 0;
      SimulatedDevices::give(other, [&seen, byte] { seen = *byte; });
      if (keeps) queues.keep(memory, other);
      memory.clear();
      SimulatedDevices::synchronize();
      spoilt[keeps] += seen != 7;
    }
  }
  CHECK(spoilt[true] == 0);
  CHECK(spoilt[false] > 3);
}

}  // namespace

}  // namespace device_queues_tests
