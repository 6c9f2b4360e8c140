#pragma once
#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <distgrad/core/buffer.hpp>
#include <distgrad/wire/reader.hpp>
#include <distgrad/wire/writer.hpp>

namespace distgrad {

/// The contract's version; a serializer names the one it was written for as `contract`.
struct serializer_v1 {};

/// The tensors of a message, in the order they were sent. None requires gradients yet: the flags
/// say what they did at the sender, and the recorder decides what they become here.
struct ReceivedTensors {
  std::vector<at::Tensor> tensors;
  std::vector<bool> requires_grad;
};

/// What `SerializerPolicy` asks for, one by one.
namespace serializer_needs {
template <class T>
concept contract = requires { requires std::derived_from<typename T::contract, serializer_v1>; };
template <class T>
concept options = requires { requires std::default_initializable<typename T::Options>; };
template <class T>
concept constructor = requires { requires std::constructible_from<T, typename T::Options>; };
template <class T>
concept pack = requires(T const& ct, Writer& out, std::vector<Buffer>& buffers,
                        std::span<at::Tensor const> tensors) {
  { ct.pack(out, buffers, tensors) } -> std::same_as<void>;
};
template <class T>
concept unpack = requires(T const& ct, Reader& in, std::span<Buffer const> received) {
  { ct.unpack(in, received) } -> std::same_as<ReceivedTensors>;
};
template <class T>
concept landing = requires(T const& ct, std::span<std::uint64_t const> lengths) {
  { ct.landing(lengths) } -> std::same_as<std::vector<Buffer>>;
};
}  // namespace serializer_needs

/// How tensors become bytes; values travel by `Codec`. Meaning, threads and errors:
/// docs/policies/serializer.md; the tests of `testing/serializer_conformance.hpp` check what the
/// compiler cannot.
template <class T>
concept SerializerPolicy = serializer_needs::contract<T> && serializer_needs::options<T> &&
                           serializer_needs::constructor<T> && serializer_needs::pack<T> &&
                           serializer_needs::unpack<T> && serializer_needs::landing<T>;

/// Compiles if `T` is a `SerializerPolicy`; otherwise the first error says what it lacks.
template <class T>
struct SerializerCheck {
  static_assert(serializer_needs::contract<T>,
                "SerializerPolicy needs: a type `contract` derived from distgrad::serializer_v1");
  static_assert(serializer_needs::options<T>,
                "SerializerPolicy needs: a type `Options` that has a default constructor");
  static_assert(serializer_needs::constructor<T>,
                "SerializerPolicy needs: a constructor that takes the type's `Options`");
  static_assert(serializer_needs::pack<T>,
                "SerializerPolicy needs: void pack(Writer&, std::vector<Buffer>&, "
                "std::span<at::Tensor const>) const");
  static_assert(serializer_needs::unpack<T>,
                "SerializerPolicy needs: ReceivedTensors unpack(Reader&, "
                "std::span<Buffer const>) const");
  static_assert(serializer_needs::landing<T>,
                "SerializerPolicy needs: std::vector<Buffer> landing("
                "std::span<std::uint64_t const>) const");
};

}  // namespace distgrad
