#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <distgrad/core/ids.hpp>

namespace distgrad {

/// Appends values to a byte vector, integers in little-endian order.
/// @threads one thread at a time.
class Writer {
 public:
  Writer() = default;
  explicit Writer(std::vector<std::byte> reuse) : bytes_(std::move(reuse)) { bytes_.clear(); }

  template <class T>
    requires std::is_arithmetic_v<T>
  void number(T value) {
    static_assert(std::endian::native == std::endian::little, "big-endian hosts are not supported");
    append(&value, sizeof value);
  }
  void raw(std::span<std::byte const> bytes) { append(bytes.data(), bytes.size()); }
  /// A 32-bit length and the characters.
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    append(value.data(), value.size());
  }
  void id(WorkerId value) { number(value.value); }
  template <class Tag>
  void id(GlobalId<Tag> const& value) {
    number(value.worker.value);
    number(value.incarnation.value);
    number(value.sequence);
  }
  void id(PassId const& value) {
    id(value.context);
    id(value.initiator);
    number(value.sequence);
  }

  /// Overwrites a number written before, at `offset` bytes from the start.
  template <class T>
  void patch(std::size_t offset, T value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
  }

  std::size_t size_bytes() const { return bytes_.size(); }
  std::vector<std::byte> const& bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void append(void const* data, std::size_t size) {
    if (size == 0) return;
    auto const old = bytes_.size();
    bytes_.resize(old + size);
    std::memcpy(bytes_.data() + old, data, size);
  }

  std::vector<std::byte> bytes_;
};

}  // namespace distgrad
