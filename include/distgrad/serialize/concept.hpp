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

/// How tensors become bytes; values travel by `Codec`. Meaning, threads and errors:
/// docs/policies/serializer.md; the tests of `testing/serializer_conformance.hpp` check what the
/// compiler cannot.
template <class T>
concept SerializerPolicy =
    std::derived_from<typename T::contract, serializer_v1> &&
    std::default_initializable<typename T::Options> &&
    std::constructible_from<T, typename T::Options> &&
    requires(T const& ct, Writer& out, std::vector<Buffer>& buffers,
             std::span<at::Tensor const> tensors, Reader& in, std::span<Buffer const> received,
             std::span<std::uint64_t const> lengths) {
      { ct.pack(out, buffers, tensors) } -> std::same_as<void>;
      { ct.unpack(in, received) } -> std::same_as<ReceivedTensors>;
      { ct.landing(lengths) } -> std::same_as<std::vector<Buffer>>;
    };

}  // namespace distgrad
