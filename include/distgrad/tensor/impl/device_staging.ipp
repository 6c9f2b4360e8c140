#pragma once
#include <algorithm>
#include <new>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/StreamGuard.h>

#include <distgrad/tensor/detail/sendable.hpp>
#include <distgrad/tensor/detail/stream_events.hpp>
#include <distgrad/tensor/device_staging.hpp>
#include <distgrad/tensor/tensor_buffer.hpp>

namespace distgrad {
namespace detail {

/// The same sparse tensor with its parts elsewhere.
template <class Move>
at::Tensor move_parts(at::Tensor const& tensor, Move&& move) {
  if (tensor.layout() != at::kSparse) return move(tensor);
  auto const indices = move(tensor._indices());
  return at::_sparse_coo_tensor_unsafe(indices, move(tensor._values()), tensor.sizes())
      ._coalesced_(tensor.is_coalesced());
}

inline at::Tensor copy_strided_to(c10::Device device, at::Tensor const& tensor) {
  auto const there = at::empty_like(tensor, tensor.options().device(device),
                                    c10::MemoryFormat::Preserve);  // an expanded one becomes dense
  there.copy_(tensor, /*non_blocking=*/true);
  return there;
}

}  // namespace detail

DISTGRAD_DECL c10::Allocator* cuda_pinned_allocator(c10::DeviceType type) {
  if (type != c10::kCUDA) return nullptr;
  return at::detail::getCUDAHooks().getPinnedMemoryAllocator();
}

DISTGRAD_DECL DeviceStaging::CopyStreams DeviceStaging::streams_of(c10::Device device) {
  std::lock_guard lock(mutex_);
  for (auto const& streams : streams_) {
    if (streams.in.device() == device) return streams;
  }
  c10::impl::VirtualGuardImpl const guard(device.type());
  return streams_.emplace_back(
      CopyStreams{guard.getStreamFromGlobalPool(device), guard.getStreamFromGlobalPool(device)});
}

DISTGRAD_DECL at::Tensor DeviceStaging::copy_strided_to_host(at::Tensor const& tensor) const {
  auto const plain = detail::with_plain_memory(tensor);
  auto meta = detail::describe_strided(plain);
  meta.device = c10::kCPU;
  std::vector<Buffer> memory;
  if (auto const bytes = meta.payload_bytes(); bytes > 0) {
    memory.push_back(allocate_landing(bytes, pinned_(tensor.device().type())));
  }
  auto host = make_tensor(meta, memory);
  host.copy_(plain, /*non_blocking=*/true);
  return host;
}

DISTGRAD_DECL at::Tensor DeviceStaging::copy_to_host(at::Tensor const& tensor) const {
  auto host = detail::move_parts(
      tensor, [this](at::Tensor const& part) { return copy_strided_to_host(part); });
  return host.set_requires_grad(tensor.requires_grad());
}

DISTGRAD_DECL std::vector<at::Tensor> DeviceStaging::to_host(std::span<at::Tensor const> tensors) {
  c10::AutoGradMode const no_recording(false);
  std::vector<at::Tensor> copies(tensors.begin(), tensors.end());
  std::vector<c10::Stream> used;
  for (auto& tensor : copies) {
    if (!is_on_device(tensor)) continue;
    detail::check_sendable(tensor);
    auto const stream = streams_of(tensor.device()).out;
    if (std::ranges::find(used, stream) == used.end()) {
      detail::event_on(detail::stream_in_use(tensor.device())).block(stream);
      used.push_back(stream);
    }
    c10::StreamGuard const on(stream);
    tensor = copy_to_host(tensor);
  }
  std::vector<c10::Event> copied;
  for (auto const stream : used) copied.push_back(detail::event_on(stream));
  for (std::size_t i = 0; i < used.size(); ++i) detail::await(copied[i], used[i]);
  return copies;
}

DISTGRAD_DECL void DeviceStaging::to_devices(std::span<at::Tensor> tensors,
                                             std::span<c10::Device const> devices) {
  c10::AutoGradMode const no_recording(false);
  std::vector<c10::Device> used;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || devices[i].is_cpu() || tensors[i].device() == devices[i]) continue;
    auto const user = detail::stream_in_use(devices[i]);
    c10::StreamGuard const on(streams_of(devices[i]).in);
    tensors[i] = detail::move_parts(tensors[i], [&](at::Tensor const& part) {
      auto const copy = detail::copy_strided_to(devices[i], part);
      detail::record_use(copy.storage(), user);
      return copy;
    });
    if (std::ranges::find(used, devices[i]) == used.end()) used.push_back(devices[i]);
  }
  for (auto const device : used) {
    detail::event_on(streams_of(device).in).block(detail::stream_in_use(device));
  }
}

DISTGRAD_DECL std::vector<Buffer> DeviceStaging::landing(std::span<std::uint64_t const> lengths,
                                                         c10::DeviceType type) const {
  std::vector<Buffer> buffers;
  try {
    for (auto const length : lengths) buffers.push_back(allocate_landing(length, pinned_(type)));
  } catch (std::bad_alloc const&) {
    // A peer announced more than there is; fewer buffers refuse its message.
  }
  return buffers;
}

}  // namespace distgrad
