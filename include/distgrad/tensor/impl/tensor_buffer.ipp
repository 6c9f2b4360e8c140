#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/Storage.h>

#include <distgrad/core/error.hpp>
#include <distgrad/tensor/detail/sendable.hpp>
#include <distgrad/tensor/tensor_buffer.hpp>

namespace distgrad {
namespace detail {

// The deleter of every buffer made here. Finding it in a buffer's owner is how `make_tensor`
// recognises memory that is a storage already.
struct StorageOwner {
  c10::Storage storage;
  void operator()(void*) noexcept { storage = c10::Storage(); }
};

inline Buffer buffer_in(c10::Storage storage, void* data, std::size_t size_bytes) {
  return {std::shared_ptr<void>(data, StorageOwner{std::move(storage)}), data, size_bytes};
}

// Templates, so that a libtorch without the const accessors still compiles. The const ones do not
// separate a copy-on-write storage.
template <class Tensor>
void* first_element(Tensor const& tensor) {
  if constexpr (requires { tensor.const_data_ptr(); }) {
    return const_cast<void*>(tensor.const_data_ptr());
  } else {
    return tensor.data_ptr();
  }
}
template <class Storage>
void* first_byte(Storage const& storage) {
  if constexpr (requires { storage.mutable_data(); }) {
    return const_cast<void*>(storage.data());
  } else {
    return storage.data();
  }
}

inline TensorMeta append_strided(at::Tensor const& tensor, std::vector<Buffer>& buffers) {
  auto const plain = with_plain_memory(tensor);
  auto meta = describe_strided(plain);
  if (auto const bytes = meta.payload_bytes(); bytes > 0) {
    buffers.push_back(buffer_in(plain.storage(), first_element(plain), bytes));
  }
  return meta;
}

inline TensorMeta append_sparse(at::Tensor const& tensor, std::vector<Buffer>& buffers) {
  TensorMeta meta;
  meta.kind = TensorKind::sparse_coo;
  meta.dtype = tensor.scalar_type();
  meta.device = tensor.device();
  meta.is_coalesced = tensor.is_coalesced();
  meta.sizes = tensor.sizes();
  c10::AutoGradMode const no_recording(false);
  meta.parts.push_back(append_strided(tensor._indices(), buffers));
  meta.parts.push_back(append_strided(tensor._values(), buffers));
  return meta;
}

// A storage that is `buffer`: its own one, or one that holds on to it.
inline c10::Storage storage_of(Buffer const& buffer) {
  if (auto const* owner = std::get_deleter<StorageOwner>(buffer.owner());
      owner && first_byte(owner->storage) == buffer.data() &&
      owner->storage.nbytes() >= buffer.size_bytes()) {
    return owner->storage;
  }
  auto hold = std::make_unique<std::shared_ptr<void>>(buffer.owner());
  c10::DataPtr data(
      buffer.data(), hold.release(),
      [](void* context) { delete static_cast<std::shared_ptr<void>*>(context); },
      c10::Device(c10::DeviceType::CPU));
  return {c10::Storage::use_byte_size_t(), buffer.size_bytes(), std::move(data), nullptr, false};
}

inline bool is_aligned(Buffer const& buffer, std::size_t element_bytes) {
  return reinterpret_cast<std::uintptr_t>(buffer.data()) % element_bytes == 0;
}

inline at::Tensor make_strided(TensorMeta const& meta, std::span<Buffer const> buffers) {
  auto const bytes = meta.payload_bytes();
  Buffer memory = bytes > 0 ? buffers[0] : allocate_landing(0);
  if (memory.size_bytes() < bytes || (bytes > 0 && memory.data() == nullptr)) {
    bad_tensor("of " + std::to_string(bytes) + " bytes came with a buffer of " +
               std::to_string(memory.size_bytes()));
  }
  if (!is_aligned(memory, c10::elementSize(meta.dtype))) {
    auto aligned = allocate_landing(bytes);
    std::memcpy(aligned.data(), memory.data(), bytes);
    memory = std::move(aligned);
  }
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(storage_of(memory),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         c10::scalarTypeToTypeMeta(meta.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes, meta.strides);
  return tensor;
}

// Whether column `b` of the indices comes after column `a` in row-major order.
inline bool column_follows(std::int64_t const* data, c10::IntArrayRef strides,
                           std::int64_t dimensions, std::int64_t a, std::int64_t b) {
  for (std::int64_t d = 0; d < dimensions; ++d) {
    auto const x = data[d * strides[0] + a * strides[1]], y = data[d * strides[0] + b * strides[1]];
    if (x != y) return x < y;
  }
  return false;
}

// libtorch trusts sparse indices in its kernels and, in newer versions, in its factories: an index
// from a peer that is out of range would read or write foreign memory.
inline void check_indices(TensorMeta const& meta, at::Tensor const& indices) {
  auto const dimensions = indices.size(0), count = indices.size(1);
  auto const strides = indices.strides();
  auto const* data = static_cast<std::int64_t const*>(first_element(indices));
  for (std::int64_t d = 0; d < dimensions; ++d) {
    for (std::int64_t n = 0; n < count; ++n) {
      auto const index = data[d * strides[0] + n * strides[1]];
      if (index < 0 || index >= meta.sizes[d]) {
        bad_tensor("is sparse with index " + std::to_string(index) + " in dimension " +
                   std::to_string(d) + " of size " + std::to_string(meta.sizes[d]));
      }
    }
  }
  for (std::int64_t n = 1; meta.is_coalesced && n < count; ++n) {
    if (!column_follows(data, strides, dimensions, n - 1, n)) {
      bad_tensor("claims to be coalesced, but its indices are not sorted and unique");
    }
  }
}

inline at::Tensor make_sparse(TensorMeta const& meta, std::span<Buffer const> buffers) {
  auto const index_buffers = meta.parts[0].buffer_count();
  auto const indices = make_strided(meta.parts[0], buffers.first(index_buffers));
  auto const values = make_strided(meta.parts[1], buffers.subspan(index_buffers));
  check_indices(meta, indices);
  c10::AutoGradMode const no_recording(false);
  return at::_sparse_coo_tensor_unsafe(indices, values, meta.sizes)._coalesced_(meta.is_coalesced);
}

}  // namespace detail

DISTGRAD_DECL TensorMeta append_tensor(at::Tensor const& tensor, std::vector<Buffer>& buffers) {
  if (!tensor.defined()) return {};
  detail::check_sendable(tensor);
  if (!tensor.device().is_cpu()) {
    detail::cannot_send("a tensor on device " + detail::printed(tensor.device()),
                        "supported is the CPU: send cpu() of it");
  }
  auto meta = tensor.layout() == at::kSparse ? detail::append_sparse(tensor, buffers)
                                             : detail::append_strided(tensor, buffers);
  meta.requires_grad = tensor.requires_grad();
  return meta;
}

DISTGRAD_DECL at::Tensor make_tensor(TensorMeta const& meta, std::span<Buffer const> buffers) {
  if (buffers.size() != meta.buffer_count()) detail::bad_tensor("came with too few buffers");
  if (meta.kind == TensorKind::undefined) return {};
  if (!meta.device.is_cpu()) {
    detail::bad_tensor("is for device " + detail::printed(meta.device) + "; supported is the CPU");
  }
  try {
    return meta.kind == TensorKind::sparse_coo ? detail::make_sparse(meta, buffers)
                                               : detail::make_strided(meta, buffers);
  } catch (c10::Error const& e) {
    detail::bad_tensor(std::string("was refused by libtorch: ") + e.what_without_backtrace());
  }
}

DISTGRAD_DECL Buffer allocate_landing(std::size_t size_bytes, c10::Allocator* allocator) try {
  if (!allocator) allocator = c10::GetCPUAllocator();
  c10::Storage storage(c10::Storage::use_byte_size_t(), size_bytes, allocator->allocate(size_bytes),
                       allocator, true);
  auto* const data = detail::first_byte(storage);
  return detail::buffer_in(std::move(storage), data, size_bytes);
} catch (c10::Error const&) {
  throw std::bad_alloc();
}

}  // namespace distgrad
