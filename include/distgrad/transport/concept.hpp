#pragma once
#include <poll.h>

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <distgrad/core/buffer.hpp>
#include <distgrad/core/deadline.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/peer_address.hpp>
#include <distgrad/core/unique_function.hpp>
#include <distgrad/wire/message.hpp>

namespace distgrad {

/// The contract's version; a transport names the one it was written for as `contract`.
struct transport_v1 {};

/// What a transport hands messages to. All functions are called on the thread inside
/// `run_until`, one at a time, and do not throw.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  /// The header and metadata of a message have arrived: says where its payload shall land. Called
  /// only for messages that have buffers.
  /// @param metadata valid during the call. @param lengths bytes of each buffer.
  /// @return one buffer per length, each at least that long; fewer refuse the message.
  virtual std::vector<Buffer> landing(FrameHeader const& header,
                                      std::span<std::byte const> metadata,
                                      std::span<std::uint64_t const> lengths) noexcept = 0;
  /// A whole message from `from`. Messages of one sender arrive in the order they were sent.
  virtual void on_message(WorkerId from, Message message) noexcept = 0;
  /// No message from or to `peer` will pass any more. Called at most once per peer, and not after
  /// `close`. @param why `closed` when the peer said goodbye, otherwise how it was lost.
  virtual void on_peer_lost(WorkerId peer, error_code why) noexcept = 0;
};

/// What `start` gives to a transport.
struct TransportSetup {
  WorkerId self;
  /// The whole group, this worker included, in the order of ranks.
  std::vector<PeerAddress> group;
  MessageSink* sink = nullptr;
  FrameLimits limits;
  /// Shared by the workers of a job; connections that do not know it are refused.
  std::string job_secret;
  /// Bound on making one connection.
  milliseconds connect_timeout{30000};
};

/// Called once, when a message was handed to the network (success) or will never be.
/// On any thread; must not block.
using SendCompletion = unique_function<void(error_code)>;

/// What `TransportPolicy` asks for, one by one.
namespace transport_needs {
template <class T>
concept contract = requires { requires std::derived_from<typename T::contract, transport_v1>; };
template <class T>
concept options = requires { requires std::default_initializable<typename T::Options>; };
template <class T>
concept constructor = requires { requires std::constructible_from<T, typename T::Options>; };
template <class T>
concept local_endpoint = requires(T const& ct) {
  { ct.local_endpoint() } -> std::same_as<std::string>;
};
template <class T>
concept start = requires(T& t, TransportSetup setup) {
  { t.start(std::move(setup)) } -> std::same_as<void>;
};
template <class T>
concept async_send = requires(T& t, WorkerId to, Message message, SendCompletion done) {
  { t.async_send(to, std::move(message), std::move(done)) } -> std::same_as<void>;
};
template <class T>
concept run_until = requires(T& t, time_point until) {
  { t.run_until(until) } -> std::same_as<std::size_t>;
};
template <class T>
concept wake = requires(T& t) {
  { t.wake() } noexcept -> std::same_as<void>;
};
template <class T>
concept close = requires(T& t) {
  { t.close() } noexcept -> std::same_as<void>;
};
}  // namespace transport_needs

/// How messages reach a peer. Meaning, threads and errors: docs/policies/transport.md; the tests
/// of `testing/transport_conformance.hpp` check what the compiler cannot.
template <class T>
concept TransportPolicy =
    transport_needs::contract<T> && transport_needs::options<T> &&
    transport_needs::constructor<T> && transport_needs::local_endpoint<T> &&
    transport_needs::start<T> && transport_needs::async_send<T> && transport_needs::run_until<T> &&
    transport_needs::wake<T> && transport_needs::close<T>;

/// Compiles if `T` is a `TransportPolicy`; otherwise the first error says what it lacks.
/// `template struct distgrad::TransportCheck<YourTransport>;`
template <class T>
struct TransportCheck {
  static_assert(transport_needs::contract<T>,
                "TransportPolicy needs: a type `contract` derived from distgrad::transport_v1");
  static_assert(transport_needs::options<T>,
                "TransportPolicy needs: a type `Options` that has a default constructor");
  static_assert(transport_needs::constructor<T>,
                "TransportPolicy needs: a constructor that takes the type's `Options`");
  static_assert(transport_needs::local_endpoint<T>,
                "TransportPolicy needs: std::string local_endpoint() const");
  static_assert(transport_needs::start<T>, "TransportPolicy needs: void start(TransportSetup)");
  static_assert(transport_needs::async_send<T>,
                "TransportPolicy needs: void async_send(WorkerId, Message, SendCompletion)");
  static_assert(transport_needs::run_until<T>,
                "TransportPolicy needs: std::size_t run_until(time_point)");
  static_assert(transport_needs::wake<T>, "TransportPolicy needs: void wake() noexcept");
  static_assert(transport_needs::close<T>, "TransportPolicy needs: void close() noexcept");
};

/// A transport that can stop after a number of events, so that `DistEngine::poll` keeps within its
/// budget: `run_until(until, limit)` delivers at most `limit` messages, and leaves the others.
template <class T>
concept BoundedTransport =
    TransportPolicy<T> && requires(T& t, time_point until, std::size_t limit) {
      { t.run_until(until, limit) } -> std::same_as<std::size_t>;
    };

/// A transport that a loop outside of the library can wait for. Between two `run_until`, as soon as
/// there is something to do, one of `native_handles` is ready, or `longest_sleep` has passed.
template <class T>
concept WaitableTransport = TransportPolicy<T> && requires(T& t) {
  { t.native_handles() } -> std::same_as<std::vector<pollfd>>;
  { t.longest_sleep() } -> std::same_as<std::chrono::nanoseconds>;
};

}  // namespace distgrad
