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

/// What `QueuePolicy` asks for, one by one.
namespace queue_needs {
template <class T>
concept contract = requires { requires std::derived_from<typename T::contract, queue_v1>; };
template <class T>
concept options = requires { requires std::default_initializable<typename T::Options>; };
template <class T>
concept constructor = requires { requires std::constructible_from<T, typename T::Options>; };
template <class T>
concept event = requires { requires std::movable<typename T::Event>; };
template <class T>
concept is_inline = requires {
  { std::bool_constant<T::is_inline>() };
};
template <class T>
concept submit = requires(T& t, c10::Device device, ReadyTask task) {
  { t.submit(device, std::move(task)) } -> std::same_as<void>;
};
template <class T>
concept poll = requires(T& t) {
  { t.poll() } -> std::same_as<std::size_t>;
};
template <class T>
concept on_submit = requires(T& t, unique_function<void()> wake) {
  { t.on_submit(std::move(wake)) } -> std::same_as<void>;
};
template <class T>
concept stop = requires(T& t) {
  { t.stop() } noexcept -> std::same_as<void>;
};
template <class T>
concept streams = requires(T const& ct) {
  { ct.streams() } -> std::convertible_to<std::span<c10::Stream const>>;
};
template <class T>
concept record = requires(T& t, c10::Stream stream) {
  { t.record(stream) } -> std::same_as<typename T::Event>;
};
template <class T>
concept wait = requires(T& t, c10::Stream stream, typename T::Event& event) {
  { t.wait(stream, event) } -> std::same_as<void>;
};
template <class T>
concept keep = requires(T& t, c10::DataPtr const& memory, c10::Stream stream) {
  { t.keep(memory, stream) } -> std::same_as<void>;
};
}  // namespace queue_needs

/// Where work waits for a device, and in what order it runs. Meaning, threads and errors:
/// docs/policies/queue.md; the tests of `testing/queue_conformance.hpp` check what the compiler
/// cannot.
template <class T>
concept QueuePolicy =
    queue_needs::contract<T> && queue_needs::options<T> && queue_needs::constructor<T> &&
    queue_needs::event<T> && queue_needs::is_inline<T> && queue_needs::submit<T> &&
    queue_needs::poll<T> && queue_needs::on_submit<T> && queue_needs::stop<T> &&
    queue_needs::streams<T> && queue_needs::record<T> && queue_needs::wait<T> &&
    queue_needs::keep<T>;

/// Compiles if `T` is a `QueuePolicy`; otherwise the first error says what it lacks.
template <class T>
struct QueueCheck {
  static_assert(queue_needs::contract<T>,
                "QueuePolicy needs: a type `contract` derived from distgrad::queue_v1");
  static_assert(queue_needs::options<T>,
                "QueuePolicy needs: a type `Options` that has a default constructor");
  static_assert(queue_needs::constructor<T>,
                "QueuePolicy needs: a constructor that takes the type's `Options`");
  static_assert(queue_needs::event<T>, "QueuePolicy needs: a movable type `Event`");
  static_assert(queue_needs::is_inline<T>,
                "QueuePolicy needs: a constant static constexpr bool is_inline");
  static_assert(queue_needs::submit<T>, "QueuePolicy needs: void submit(c10::Device, ReadyTask)");
  static_assert(queue_needs::poll<T>, "QueuePolicy needs: std::size_t poll()");
  static_assert(queue_needs::on_submit<T>,
                "QueuePolicy needs: void on_submit(unique_function<void()>)");
  static_assert(queue_needs::stop<T>, "QueuePolicy needs: void stop() noexcept");
  static_assert(queue_needs::streams<T>,
                "QueuePolicy needs: std::span<c10::Stream const> streams() const");
  static_assert(queue_needs::record<T>, "QueuePolicy needs: Event record(c10::Stream)");
  static_assert(queue_needs::wait<T>, "QueuePolicy needs: void wait(c10::Stream, Event&)");
  static_assert(queue_needs::keep<T>,
                "QueuePolicy needs: void keep(c10::DataPtr const&, c10::Stream)");
};

}  // namespace distgrad
