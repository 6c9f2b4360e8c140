#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <distgrad/serialize/concept.hpp>

namespace distgrad {

/// Exactly what `SerializerPolicy` asks and nothing else; without bodies, so that it only compiles.
class SerializerArchetype {
 public:
  using contract = serializer_v1;
  struct Options {};

  SerializerArchetype() = delete;
  explicit SerializerArchetype(Options);
  SerializerArchetype(SerializerArchetype const&) = delete;
  SerializerArchetype& operator=(SerializerArchetype const&) = delete;

  void pack(Writer&, std::vector<Buffer>&, std::span<at::Tensor const>) const;
  ReceivedTensors unpack(Reader&, std::span<Buffer const>) const;
  std::vector<Buffer> landing(std::span<std::uint64_t const>) const;
};

static_assert(SerializerPolicy<SerializerArchetype>);

}  // namespace distgrad
