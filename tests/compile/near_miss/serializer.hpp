#pragma once
// One type per way to miss SerializerPolicy by one requirement, and what the compiler has to say.
#include "near_miss.hpp"

#include <distgrad/serialize/archetype.hpp>

namespace near_serializer {

using namespace distgrad;

struct Model {
  using contract = serializer_v1;
  struct Options {};
  explicit Model(Options) {}
  void pack(Writer&, std::vector<Buffer>&, std::span<at::Tensor const>) const;
  ReceivedTensors unpack(Reader&, std::span<Buffer const>) const;
  std::vector<Buffer> landing(std::span<std::uint64_t const>) const;
};
HIT(Serializer, Model);
HIT(Serializer, SerializerArchetype);

struct OtherContract : Model {
  using Model::Model;
  struct contract {};
};
NEAR_MISS(Serializer, OtherContract, "a type `contract` derived from distgrad::serializer_v1");

struct NoDefaultOptions : Model {
  struct Options {
    explicit Options(int);
  };
  explicit NoDefaultOptions(Options) : Model(Model::Options()) {}
};
NEAR_MISS(Serializer, NoDefaultOptions, "a type `Options` that has a default constructor");

struct NotMadeOfOptions : Model {
  NotMadeOfOptions() : Model(Options()) {}
};
NEAR_MISS(Serializer, NotMadeOfOptions, "a constructor that takes the type's `Options`");

struct PackIsNotConst : Model {
  using Model::Model;
  void pack(Writer&, std::vector<Buffer>&, std::span<at::Tensor const>);
};
NEAR_MISS(Serializer, PackIsNotConst,
          "void pack(Writer&, std::vector<Buffer>&, std::span<at::Tensor const>) const");

struct UnpackLosesFlags : Model {
  using Model::Model;
  std::vector<at::Tensor> unpack(Reader&, std::span<Buffer const>) const;
};
NEAR_MISS(Serializer, UnpackLosesFlags,
          "ReceivedTensors unpack(Reader&, std::span<Buffer const>) const");

struct UnpackIsNotConst : Model {
  using Model::Model;
  ReceivedTensors unpack(Reader&, std::span<Buffer const>);
};
NEAR_MISS(Serializer, UnpackIsNotConst,
          "ReceivedTensors unpack(Reader&, std::span<Buffer const>) const");

struct LandsOnlyOne : Model {
  using Model::Model;
  Buffer landing(std::span<std::uint64_t const>) const;
};
NEAR_MISS(Serializer, LandsOnlyOne,
          "std::vector<Buffer> landing(std::span<std::uint64_t const>) const");

}  // namespace near_serializer
