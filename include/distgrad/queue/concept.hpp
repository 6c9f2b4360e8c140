#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <distgrad/core/unique_function.hpp>

namespace distgrad {

/// The contract's version; a queue names the one it was written for as `contract`.
struct queue_v1 {};

/// Work that waits for a device.
struct ReadyTask {
  /// Higher first; equal ones in the order they were submitted.
  std::uint64_t priority = 0;
  /// Must not throw.
  unique_function<void()> run;
};

/// Where work waits for a device, and in what order it runs. Meaning, threads and errors:
/// docs/policies/queue.md; the tests of `testing/queue_conformance.hpp` check what the compiler
/// cannot.
template <class T>
concept QueuePolicy =
    std::derived_from<typename T::contract, queue_v1> &&
    std::default_initializable<typename T::Options> &&
    std::constructible_from<T, typename T::Options> && std::movable<typename T::Event> &&
    requires(T& t, T const& ct, c10::Device device, ReadyTask task, c10::Stream stream,
             typename T::Event& event, c10::DataPtr const& memory, unique_function<void()> wake) {
      { std::bool_constant<T::is_inline>() };
      { t.submit(device, std::move(task)) } -> std::same_as<void>;
      { t.poll() } -> std::same_as<std::size_t>;
      { t.on_submit(std::move(wake)) } -> std::same_as<void>;
      { t.stop() } noexcept -> std::same_as<void>;
      { ct.streams() } -> std::convertible_to<std::span<c10::Stream const>>;
      { t.record(stream) } -> std::same_as<typename T::Event>;
      { t.wait(stream, event) } -> std::same_as<void>;
      { t.keep(memory, stream) } -> std::same_as<void>;
    };

}  // namespace distgrad
