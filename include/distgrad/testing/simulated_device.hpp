#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include <distgrad/testing/detail/simulated_kernels.hpp>
#include <distgrad/testing/detail/simulated_machine.hpp>

namespace distgrad::testing {

/// The type of the simulated devices; there are two, with 8 streams each.
inline constexpr c10::DeviceType simulated = detail::simulated_type;

/// Asynchronous devices on a machine that has none, for tests of whoever orders work by streams
/// and events. They are libtorch devices like any other (autograd, guards, `c10::Stream`,
/// `c10::Event`), and a program that is right on real ones is right here.
///
/// A program that is not becomes wrong here, often: kernels run late, in an order that a seed picks
/// among all that streams and events allow, some streams much slower than others. A missing event
/// reads elements before they are written. A tensor used on another stream without
/// `recordDataPtrOnStream` is overwritten by nan as soon as its owner let go of it.
///
///     for (std::uint64_t seed = 0; seed < 20; ++seed) {
///       SimulatedDevices const devices(seed);
///       auto const x = at::ones({3}).to(c10::Device(simulated, 1));
///       auto const y = x.add(x);                 // only enqueued
///       CHECK(y.cpu().equal(at::full({3}, 2)));  // waits
///     }
///
/// Operators are those of the CPU, for dense tensors. Memory of `pinned_allocator` is the host's;
/// copies with `non_blocking` use it when their kernel runs, as real devices do with pinned memory.
/// @threads safe; kernels run on the thread that waits, one at a time.
class SimulatedDevices {
 public:
  /// Waits for everything, then starts anew. One object at a time.
  /// @param seed picks the order of kernels, how slow each stream is, and how late kernels are:
  /// only when somebody waits, or now and then before.
  explicit SimulatedDevices(std::uint64_t seed = 0) {
    install();
    machine().reset(seed, unsigned(seed % 3 * 30));
  }
  ~SimulatedDevices() { synchronize(); }
  SimulatedDevices(SimulatedDevices const&) = delete;
  SimulatedDevices& operator=(SimulatedDevices const&) = delete;

  /// Tells libtorch of the devices; so does the first object.
  static void install() { detail::install_simulated_devices(); }
  /// Gives `work` to a stream, as a kernel. It must not use a simulated device itself.
  static void give(c10::Stream stream, unique_function<void()> work) {
    machine().enqueue(machine().number(stream), std::move(work));
  }
  /// Waits for all work of all devices.
  static void synchronize() { machine().await_all(); }
  /// How often the host waited for a stream, an event or a device.
  static std::size_t host_waits() { return machine().host_waits(); }
  /// What the first kernel that failed said; empty if none did. Its results are nan.
  static std::string error() { return machine().error(); }
  /// Memory of the host that copies need not wait for. It lives as long as the program.
  static c10::Allocator& pinned_allocator() {
    static detail::SimulatedAllocator allocator(true);
    return allocator;
  }

 private:
  static detail::SimulatedMachine& machine() { return detail::SimulatedMachine::get(); }
};

}  // namespace distgrad::testing
