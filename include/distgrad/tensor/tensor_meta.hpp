#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/DimVector.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <distgrad/config.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/wire/reader.hpp>
#include <distgrad/wire/tensor_kind.hpp>
#include <distgrad/wire/writer.hpp>

namespace distgrad {

/// All of a tensor but its elements. A strided tensor is dense: its elements fill
/// `payload_bytes()` bytes without gap or overlap, in the order its strides give.
/// @threads distinct objects.
struct TensorMeta {
  TensorKind kind = TensorKind::undefined;
  at::ScalarType dtype = at::ScalarType::Float;
  bool requires_grad = false;
  /// Sparse only: indices are sorted and unique.
  bool is_coalesced = false;
  c10::Device device{c10::DeviceType::CPU};
  at::DimVector sizes;
  /// In elements; one per size for strided tensors, none for others.
  at::DimVector strides;
  /// Sparse only: indices `[sparse_dim, nnz]` and values `[nnz, dense sizes...]`.
  std::vector<TensorMeta> parts;

  /// Bytes of a strided tensor's elements; at most 2^63 - 1. Zero for other kinds.
  DISTGRAD_DECL std::uint64_t payload_bytes() const;
  /// How many of a message's buffers belong to the tensor.
  DISTGRAD_DECL std::size_t buffer_count() const;
};

/// Appends `meta`; strides travel only where they are not those of a contiguous tensor.
DISTGRAD_DECL void write_tensor_meta(Writer& out, TensorMeta const& meta);

/// Reads and checks what a peer wrote: known kind and dtype, at most 64 dimensions, no overflow,
/// dense strides, sparse parts that fit together.
/// @throws Error `errc::bad_value`.
DISTGRAD_DECL TensorMeta read_tensor_meta(Reader& in);

/// Whether elements at `strides` fill memory without gap or overlap. Dimensions of size one, and
/// all dimensions of a tensor without elements, may have any stride that is not negative.
DISTGRAD_DECL bool has_dense_strides(c10::IntArrayRef sizes, c10::IntArrayRef strides);

/// Strides, in elements, of a contiguous tensor. The product of `sizes` must not overflow.
DISTGRAD_DECL at::DimVector dense_strides(c10::IntArrayRef sizes);

namespace detail {
[[noreturn]] inline void bad_tensor(std::string const& what) {
  throw Error(errc::bad_value, "a received tensor " + what);
}

inline bool is_quantized_type(at::ScalarType type) {
  return type == at::ScalarType::QInt8 || type == at::ScalarType::QUInt8 ||
         type == at::ScalarType::QInt32 || type == at::ScalarType::QUInt4x2 ||
         type == at::ScalarType::QUInt2x4;
}

}  // namespace detail

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/tensor/impl/tensor_meta.ipp>
#endif
