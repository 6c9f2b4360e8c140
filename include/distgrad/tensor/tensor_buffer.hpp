#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <distgrad/config.hpp>
#include <distgrad/core/buffer.hpp>
#include <distgrad/tensor/tensor_meta.hpp>

namespace distgrad {

/// Describes `tensor` and appends the buffers that hold its elements, which keep its storage
/// alive. Dense memory is shown as it is, without a copy, whatever view of a storage it is.
/// Copied are only: a view with gaps or overlaps (made compact, dimensions in the order of its
/// strides), lazy conjugates, negatives and zeros, and memory nobody owns (`from_blob` without
/// deleter). Autograd history does not travel, the flag `requires_grad` does.
/// @throws Error `errc::unsupported_tensor` for a tensor that is not on the CPU, quantized,
///   nested, of another layout than strided or sparse COO, or without a storage. `buffers` is then
///   unchanged.
/// @threads the elements must not be written until the last copy of the buffers is gone.
DISTGRAD_DECL TensorMeta append_tensor(at::Tensor const& tensor, std::vector<Buffer>& buffers);

/// The tensor `meta` describes with its elements in `buffers`, without a copy where memory is
/// aligned for the element type. It keeps the buffer alive, is an ordinary CPU tensor, and does
/// not require gradients yet, whatever `meta` says.
/// @param buffers exactly `meta.buffer_count()`, each at least as long as its part needs.
/// @throws Error `errc::bad_value` when they are not, when a sparse index is out of range, or when
///   the device is not the CPU.
DISTGRAD_DECL at::Tensor make_tensor(TensorMeta const& meta, std::span<Buffer const> buffers);

/// Uninitialised memory of the host, which `make_tensor` makes the tensor's own storage.
/// @param allocator null for libtorch's CPU allocator, whose memory is aligned to 64 bytes.
/// @throws std::bad_alloc
DISTGRAD_DECL Buffer allocate_landing(std::size_t size_bytes, c10::Allocator* allocator = nullptr);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/tensor/impl/tensor_buffer.ipp>
#endif
