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

/// How messages reach a peer. Meaning, threads and errors: docs/policies/transport.md; the tests
/// of `testing/transport_conformance.hpp` check what the compiler cannot.
template <class T>
concept TransportPolicy =
    std::derived_from<typename T::contract, transport_v1> &&
    std::default_initializable<typename T::Options> &&
    std::constructible_from<T, typename T::Options> &&
    requires(T& t, T const& ct, TransportSetup setup, WorkerId to, Message m, SendCompletion done,
             time_point until) {
      { ct.local_endpoint() } -> std::same_as<std::string>;
      { t.start(std::move(setup)) } -> std::same_as<void>;
      { t.async_send(to, std::move(m), std::move(done)) } -> std::same_as<void>;
      { t.run_until(until) } -> std::same_as<std::size_t>;
      { t.wake() } noexcept -> std::same_as<void>;
      { t.close() } noexcept -> std::same_as<void>;
    };

/// A transport that can stop after a number of events, so that `DistEngine::poll` keeps within its
/// budget: `run_until(until, limit)` delivers at most `limit` messages, and leaves the others.
template <class T>
concept BoundedTransport = TransportPolicy<T> && requires(T& t, time_point until,
                                                          std::size_t limit) {
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
