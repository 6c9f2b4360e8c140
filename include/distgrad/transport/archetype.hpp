#pragma once
#include <distgrad/transport/concept.hpp>

namespace distgrad {

/// Exactly what `TransportPolicy` asks and nothing more. The library is instantiated with it, so
/// that it cannot lean on anything the contract does not promise. It has no bodies: never run.
class TransportArchetype {
 public:
  using contract = transport_v1;
  struct Options {};

  explicit TransportArchetype(Options options);
  TransportArchetype(TransportArchetype const&) = delete;
  TransportArchetype& operator=(TransportArchetype const&) = delete;

  std::string local_endpoint() const;
  void start(TransportSetup setup);
  void async_send(WorkerId to, Message message, SendCompletion done);
  std::size_t run_until(time_point until);
  void wake() noexcept;
  void close() noexcept;
};

static_assert(TransportPolicy<TransportArchetype>);

}  // namespace distgrad
