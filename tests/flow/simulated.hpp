#pragma once
// Engines whose tensors are on simulated devices. A flow test that makes its tensors with
// `rig::at_home` runs with them like with any engine:
//
//   TEST_CASE_TEMPLATE("...", Engine, DISTGRAD_ALL_ENGINES) {
//     rig::Cluster<2, Engine> cluster;

#include "rig.hpp"

#include <atomic>

#include <distgrad/testing/simulated_device.hpp>

namespace rig {

/// Queues that know memory of the host which the devices copy from and to while it goes on, and how
/// often they were asked for it.
struct SimulatedQueues : distgrad::CpuQueues {
  using distgrad::CpuQueues::CpuQueues;
  static inline std::atomic<int> pinned{0};
  static c10::Allocator* pinned_allocator(c10::DeviceType) {
    ++pinned;
    return &distgrad::testing::SimulatedDevices::pinned_allocator();
  }
};

using SimulatedLoopback = distgrad::DistEngine<distgrad::LoopbackTransport, SimulatedQueues>;
using SimulatedTcp = distgrad::DistEngine<distgrad::TcpTransport, SimulatedQueues>;

// Compiled once, in device_maps.cpp. @param instantiation `extern template` or `template`.
#define DISTGRAD_DEVICE_ENGINE(instantiation, transport)                              \
  instantiation class distgrad::PolicyHost<distgrad::transport, rig::SimulatedQueues, \
                                           distgrad::TensorSerializer>;               \
  instantiation class distgrad::DistEngine<distgrad::transport, rig::SimulatedQueues>

#define DISTGRAD_DEVICE_ENGINES rig::SimulatedLoopback, rig::SimulatedTcp
#define DISTGRAD_ALL_ENGINES DISTGRAD_ENGINES, DISTGRAD_DEVICE_ENGINES

/// While it lives, tests make their tensors on the first of the simulated devices, which run in
/// another order each time.
class SimulatedHome {
 public:
  SimulatedHome() : devices_(next_seed()++) {
    home() = c10::Device(distgrad::testing::simulated, 0);
  }
  ~SimulatedHome() {
    home() = c10::kCPU;
    CHECK(devices_.error() == "");
  }

  /// Each device of a worker belongs to the same one of its peers.
  template <std::size_t N, class Options>
  static void prepare(Options& options) {
    if (!options.device_maps.empty()) return;
    distgrad::DeviceMap const same = {{"privateuseone:0", "privateuseone:0"},
                                      {"privateuseone:1", "privateuseone:1"}};
    for (std::size_t i = 0; i < N; ++i) options.device_maps["worker" + std::to_string(i)] = same;
  }

 private:
  static std::uint64_t& next_seed() {
    static std::uint64_t seed = 0;
    return seed;
  }

  distgrad::testing::SimulatedDevices devices_;
};

template <>
struct Home<SimulatedLoopback> : SimulatedHome {};
template <>
struct Home<SimulatedTcp> : SimulatedHome {};

}  // namespace rig

DISTGRAD_DEVICE_ENGINE(extern template, LoopbackTransport);
DISTGRAD_DEVICE_ENGINE(extern template, TcpTransport);
