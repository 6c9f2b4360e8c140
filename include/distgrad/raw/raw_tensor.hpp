#pragma once
#include <algorithm>
#include <complex>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <distgrad/core/buffer.hpp>
#include <distgrad/wire/tensor_kind.hpp>

namespace distgrad {

/// Types of a tensor's elements, by their numbers on the wire, which are libtorch's.
enum class ElementType : std::uint8_t {
  u8 = 0,
  i8 = 1,
  i16 = 2,
  i32 = 3,
  i64 = 4,
  f16 = 5,
  f32 = 6,
  f64 = 7,
  complex32 = 8,    ///< two f16
  complex64 = 9,    ///< two f32
  complex128 = 10,  ///< two f64
  boolean = 11,     ///< a byte, 0 or 1
  bf16 = 15,
};

/// Bytes of one element; 0 for a number that is none of the above.
constexpr std::size_t element_bytes(ElementType type) {
  switch (type) {
    case ElementType::u8:
    case ElementType::i8:
    case ElementType::boolean: return 1;
    case ElementType::i16:
    case ElementType::f16:
    case ElementType::bf16: return 2;
    case ElementType::i32:
    case ElementType::f32:
    case ElementType::complex32: return 4;
    case ElementType::i64:
    case ElementType::f64:
    case ElementType::complex64: return 8;
    case ElementType::complex128: return 16;
  }
  return 0;
}

namespace detail {

template <class T>
struct element_type_of;
// clang-format off
template <> struct element_type_of<std::uint8_t> { static constexpr auto value = ElementType::u8; };
template <> struct element_type_of<std::int8_t> { static constexpr auto value = ElementType::i8; };
template <> struct element_type_of<std::int16_t> { static constexpr auto value = ElementType::i16; };
template <> struct element_type_of<std::int32_t> { static constexpr auto value = ElementType::i32; };
template <> struct element_type_of<std::int64_t> { static constexpr auto value = ElementType::i64; };
template <> struct element_type_of<float> { static constexpr auto value = ElementType::f32; };
template <> struct element_type_of<double> { static constexpr auto value = ElementType::f64; };
template <> struct element_type_of<std::complex<float>> { static constexpr auto value = ElementType::complex64; };
template <> struct element_type_of<std::complex<double>> { static constexpr auto value = ElementType::complex128; };
// clang-format on

/// Memory of `size_bytes`, or none if there is not so much.
inline Buffer allocate_raw(std::uint64_t size_bytes) {
  constexpr auto most = static_cast<std::uint64_t>(PTRDIFF_MAX);
  auto* const memory = size_bytes <= most
                           ? ::operator new(static_cast<std::size_t>(size_bytes), std::nothrow)
                           : nullptr;
  if (!memory) return {};
  std::shared_ptr<void> owner(memory, [](void* p) { ::operator delete(p); });
  return {std::move(owner), memory, static_cast<std::size_t>(size_bytes)};
}

}  // namespace detail

/// What a tensor is without libtorch: the type of its elements, its sizes, and its elements, the
/// last dimension's side by side. Copies share the elements.
struct RawTensor {
  ElementType type = ElementType::f32;
  /// At most 64. None for a single number.
  std::vector<std::int64_t> sizes;
  /// `element_count() * element_bytes(type)` bytes.
  Buffer elements;

  std::int64_t element_count() const {
    std::uint64_t count = 1;  // wraps around for sizes that no memory holds
    for (auto const size : sizes) count *= static_cast<std::uint64_t>(size);
    return static_cast<std::int64_t>(count);
  }
  /// Whether sizes and elements fit together, and could be sent.
  bool is_whole() const {
    bool const are_sizes = sizes.size() <= max_tensor_dimensions &&
                           std::ranges::all_of(sizes, [](auto size) { return size >= 0; });
    return are_sizes && static_cast<std::uint64_t>(element_count()) * element_bytes(type) ==
                            elements.size_bytes();
  }
  /// The elements as numbers of `T`; none if that is not their type.
  template <class T>
  std::span<T> as() const {
    if (type != detail::element_type_of<std::remove_const_t<T>>::value) return {};
    return {reinterpret_cast<T*>(elements.data()), elements.size_bytes() / sizeof(T)};
  }

  /// A tensor that shares the memory of `elements`, which has to outlive its last copy unless
  /// `owner` keeps it: a call that is under way has one, too.
  template <class T>
  static RawTensor view(std::span<T> elements, std::vector<std::int64_t> sizes,
                        std::shared_ptr<void> owner = nullptr) {
    return {detail::element_type_of<T>::value, std::move(sizes),
            Buffer(std::move(owner), elements.data(), elements.size_bytes())};
  }
  /// A tensor that has `elements` for itself.
  template <class T>
  static RawTensor of(std::vector<T> elements, std::vector<std::int64_t> sizes) {
    auto owner = std::make_shared<std::vector<T>>(std::move(elements));
    std::span<T> const all(*owner);
    return view(all, std::move(sizes), std::move(owner));
  }
};

}  // namespace distgrad
