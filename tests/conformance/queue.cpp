#include <distgrad/queue/cpu_queues.hpp>
#include <distgrad/queue/device_queues.hpp>
#include <distgrad/queue/inline_queues.hpp>
#include <distgrad/testing/queue_conformance.hpp>
#include <distgrad/testing/simulated_device.hpp>

namespace {

struct InlineRig {
  using Queues = distgrad::InlineQueues;
  static std::unique_ptr<Queues> make() { return std::make_unique<Queues>(); }
  static std::unique_ptr<Queues> make_serial() { return make(); }
  static c10::Device device() { return c10::DeviceType::CPU; }
};

struct CpuRig {
  using Queues = distgrad::CpuQueues;
  static std::unique_ptr<Queues> make() {
    return std::make_unique<Queues>(Queues::Options{.threads = 4});
  }
  static std::unique_ptr<Queues> make_serial() {
    return std::make_unique<Queues>(Queues::Options{.threads = 1});
  }
  static c10::Device device() { return c10::DeviceType::CPU; }
};

using namespace distgrad::testing;

struct DeviceRig {
  using Queues = distgrad::DeviceQueues;
  static std::unique_ptr<Queues> make() { return make_with(4); }
  static std::unique_ptr<Queues> make_serial() { return make_with(1); }
  static c10::Device device() { return {simulated, 1}; }
  static void give(c10::Stream stream, distgrad::unique_function<void()> work) {
    SimulatedDevices::give(stream, std::move(work));
  }
  static void finish() { SimulatedDevices::synchronize(); }

 private:
  static std::unique_ptr<Queues> make_with(std::size_t threads) {
    static SimulatedDevices const devices(1);
    Queues::Options options;
    options.threads = threads;
    options.devices = {{simulated, 0}, {simulated, 1}};
    return std::make_unique<Queues>(options);
  }
};

TEST_CASE_TEMPLATE_INVOKE(queue_conformance, InlineRig, CpuRig, DeviceRig);

}  // namespace
