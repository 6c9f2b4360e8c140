#include <distgrad/queue/cpu_queues.hpp>
#include <distgrad/queue/inline_queues.hpp>
#include <distgrad/testing/queue_conformance.hpp>

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
TEST_CASE_TEMPLATE_INVOKE(queue_conformance, InlineRig, CpuRig);

}  // namespace
