// Does not compile, on purpose: an engine says first what its policies lack. See near_miss.hpp.
#include <distgrad/engine/dist_engine.hpp>
#include <distgrad/queue/archetype.hpp>
#include <distgrad/serialize/archetype.hpp>
#include <distgrad/transport/archetype.hpp>

using namespace distgrad;

struct NoWake : TransportArchetype {
  using TransportArchetype::TransportArchetype;
  void wake() = delete;
};
struct NoPoll : QueueArchetype {
  using QueueArchetype::QueueArchetype;
  void poll() = delete;
};
struct NoPack : SerializerArchetype {
  using SerializerArchetype::SerializerArchetype;
  void pack() = delete;
};
struct NoDeadline {
  using contract = rendezvous_v1;
  std::vector<PeerAddress> exchange(PeerAddress, std::uint32_t);
};

#define NEAR_MISS(Role, Type, text) static_assert(sizeof(Type) > 0)
using EngineWithoutWake = DistEngine<NoWake, QueueArchetype, SerializerArchetype>;
NEAR_MISS(Transport, EngineWithoutWake, "void wake() noexcept");

using EngineWithoutPoll = DistEngine<TransportArchetype, NoPoll, SerializerArchetype>;
NEAR_MISS(Queue, EngineWithoutPoll, "std::size_t poll()");

using EngineWithoutPack = DistEngine<TransportArchetype, QueueArchetype, NoPack>;
NEAR_MISS(Serializer, EngineWithoutPack,
          "void pack(Writer&, std::vector<Buffer>&, std::span<at::Tensor const>) const");

using WithoutDeadline = decltype(Rendezvous(NoDeadline()));
NEAR_MISS(Rendezvous, WithoutDeadline,
          "std::vector<PeerAddress> exchange(PeerAddress, std::uint32_t, Deadline)");
