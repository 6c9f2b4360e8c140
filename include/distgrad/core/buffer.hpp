#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace distgrad {

/// A run of bytes and whatever keeps them alive: a tensor's storage, an arena, a string.
/// Copying a `Buffer` shares the bytes. Bytes of a buffer that is being sent must not change.
class Buffer {
 public:
  Buffer() = default;
  /// @param owner keeps `[data, data + size_bytes)` valid.
  Buffer(std::shared_ptr<void> owner, void* data, std::size_t size_bytes)
      : owner_(std::move(owner)), data_(static_cast<std::byte*>(data)), size_bytes_(size_bytes) {}

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }
  std::span<std::byte> bytes() const { return {data_, size_bytes_}; }
  std::shared_ptr<void> const& owner() const { return owner_; }

 private:
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace distgrad
