#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/serialize/concept.hpp>
#include <distgrad/tensor/tensor_buffer.hpp>

namespace distgrad {

/// Writes the table of `tensors` to `out` and appends their elements to `buffers`, without a copy
/// where memory is dense. A failure leaves `buffers` as it was.
/// @throws Error `errc::unsupported_tensor`, naming the tensor's place in the list.
DISTGRAD_DECL void pack_tensors(Writer& out, std::vector<Buffer>& buffers,
                                std::span<at::Tensor const> tensors);

/// Reads the table that `pack_tensors` wrote and makes the tensors of `buffers`, without a copy.
/// @throws Error `errc::bad_value` when the table is malformed or does not use every buffer.
DISTGRAD_DECL ReceivedTensors unpack_tensors(Reader& in, std::span<Buffer const> buffers);

/// One buffer per length, in which tensors can stay; fewer when memory runs out.
DISTGRAD_DECL std::vector<Buffer> allocate_landings(std::span<std::uint64_t const> lengths);

/// Tensors as they are in memory: the default serializer.
/// @threads safe: shared object.
class TensorSerializer {
 public:
  using contract = serializer_v1;
  struct Options {};

  explicit TensorSerializer(Options = {}) {}

  void pack(Writer& out, std::vector<Buffer>& buffers, std::span<at::Tensor const> tensors) const {
    pack_tensors(out, buffers, tensors);
  }
  ReceivedTensors unpack(Reader& in, std::span<Buffer const> buffers) const {
    return unpack_tensors(in, buffers);
  }
  std::vector<Buffer> landing(std::span<std::uint64_t const> lengths) const {
    return allocate_landings(lengths);
  }
};

static_assert(SerializerPolicy<TensorSerializer>);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/serialize/impl/serializer.ipp>
#endif
