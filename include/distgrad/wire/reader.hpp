#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <distgrad/core/ids.hpp>

namespace distgrad {

/// Reads values from bytes a peer sent. It never reads past the end: a value that is not there
/// reads as zero or empty and turns `ok()` false for good, so that a decoder checks once, at its
/// end. @threads one thread at a time; the bytes must outlive the reader.
class Reader {
 public:
  explicit Reader(std::span<std::byte const> bytes) : rest_(bytes) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  T number() {
    T value{};
    if (auto const bytes = raw(sizeof(T)); bytes.size() == sizeof(T)) {
      if constexpr (std::is_same_v<T, bool>) {
        value = bytes[0] != std::byte{0};
      } else {
        std::memcpy(&value, bytes.data(), sizeof(T));
      }
    }
    return value;
  }
  /// `size` bytes, or none if fewer are left.
  std::span<std::byte const> raw(std::size_t size) {
    if (size > rest_.size()) {
      fail();
      return {};
    }
    auto const taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  /// A view of the characters `Writer::text` wrote.
  std::string_view text_view() {
    auto const bytes = raw(number<std::uint32_t>());
    return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
  }
  std::string text() { return std::string(text_view()); }

  /// A count of elements of at least `least_bytes` bytes each; fails when the rest cannot hold
  /// them, so that a container may be sized by the result without fear of an absurd number.
  std::size_t count(std::size_t least_bytes = 1) {
    auto const n = number<std::uint64_t>();
    if (n > rest_.size() / (least_bytes ? least_bytes : 1)) {
      fail();
      return 0;
    }
    return static_cast<std::size_t>(n);
  }

  template <class Id>
  Id id() {
    Id value;
    read(value);
    return value;
  }

  std::size_t remaining_bytes() const { return rest_.size(); }
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  /// Marks the input as malformed.
  void fail() {
    ok_ = false;
    rest_ = {};
  }

 private:
  void read(WorkerId& to) { to.value = number<std::uint32_t>(); }
  template <class Tag>
  void read(GlobalId<Tag>& to) {
    to.worker.value = number<std::uint32_t>();
    to.incarnation.value = number<std::uint32_t>();
    to.sequence = number<std::uint64_t>();
  }
  void read(PassId& to) {
    read(to.context);
    read(to.initiator);
    to.sequence = number<std::uint32_t>();
  }

  std::span<std::byte const> rest_;
  bool ok_ = true;
};

}  // namespace distgrad
