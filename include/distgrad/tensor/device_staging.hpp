#pragma once
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <distgrad/config.hpp>
#include <distgrad/core/buffer.hpp>
#include <distgrad/tensor/device_map.hpp>

namespace distgrad {

/// Memory of the host from which and to which devices of a type copy while the host goes on; null
/// where there is none.
using PinnedAllocator = c10::Allocator* (*)(c10::DeviceType);

/// CUDA's pinned memory, where libtorch was built with it.
DISTGRAD_DECL c10::Allocator* cuda_pinned_allocator(c10::DeviceType type);

/// Brings tensors from devices to the host's memory, for messages that leave, and back, for those
/// that arrived. Each device has a copy stream for either direction, so that copies overlap with
/// what it computes. Written on libtorch's virtual guard alone, for any type of device.
/// @threads safe: shared object.
class DeviceStaging {
 public:
  explicit DeviceStaging(PinnedAllocator pinned = &cuda_pinned_allocator) : pinned_(pinned) {}

  /// The tensors with their elements in the host's memory: themselves if they are there already,
  /// otherwise copies that are described alike, `requires_grad` included. They are taken as the
  /// calling thread's current streams will have left them.
  /// Waits for the copies, inside a `BlockingRegion`, and for nothing else of the devices.
  /// @throws Error `errc::unsupported_tensor` as `append_tensor`.
  std::vector<at::Tensor> to_host(std::span<at::Tensor const> tensors);

  /// Replaces each tensor that is not undefined, and whose device is neither the host nor the one
  /// the tensor is on, by a copy there that is ready for the calling thread's current stream of
  /// that device. The host does not wait.
  void to_devices(std::span<at::Tensor> tensors, std::span<c10::Device const> devices);

  /// Memory for payloads of these lengths that go on to a device of `type`.
  std::vector<Buffer> landing(std::span<std::uint64_t const> lengths, c10::DeviceType type) const;

 private:
  struct CopyStreams {
    c10::Stream out, in;
  };
  CopyStreams streams_of(c10::Device device);
  at::Tensor copy_to_host(at::Tensor const& tensor) const;
  at::Tensor copy_strided_to_host(at::Tensor const& tensor) const;

  PinnedAllocator pinned_;
  std::mutex mutex_;
  std::vector<CopyStreams> streams_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/tensor/impl/device_staging.ipp>
#endif
