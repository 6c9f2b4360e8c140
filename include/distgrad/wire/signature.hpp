#pragma once
#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace distgrad {

/// FNV-1a over `text`, starting from `seed`: the same number for every compiler.
/// @source http://www.isthe.com/chongo/tech/comp/fnv/
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t seed = 0xcbf29ce484222325ull) {
  for (char const c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return seed;
}

/// The signature of a type built from others: `compose_signature("vector", element)`. Order
/// counts.
template <class... Parts>
constexpr std::uint64_t compose_signature(std::string_view name, Parts... parts) {
  auto hash = fnv1a(name);
  [[maybe_unused]] auto const add = [&hash](std::uint64_t part) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash = (hash ^ ((part >> shift) & 0xff)) * 0x100000001b3ull;
    }
  };
  (add(static_cast<std::uint64_t>(parts)), ...);
  return hash;
}

namespace detail {

// Numbers whose size and meaning are the same on every supported host.
template <class T>
concept PortableNumber = std::is_arithmetic_v<T> && !std::same_as<T, wchar_t> &&
                         !std::same_as<T, long double> && std::same_as<T, std::remove_cv_t<T>>;

template <PortableNumber T>
constexpr std::string_view number_name() {
  if constexpr (std::same_as<T, bool>) return "bool";
  if constexpr (std::same_as<T, char>) return "char";  // signed on some hosts only
  if constexpr (std::floating_point<T>) return sizeof(T) == 4 ? "f32" : "f64";
  constexpr std::string_view names[] = {"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"};
  return names[(sizeof(T) == 1   ? 0
                : sizeof(T) == 2 ? 2
                : sizeof(T) == 4 ? 4
                                 : 6) +
               (std::is_signed_v<T> ? 1 : 0)];
}

}  // namespace detail
}  // namespace distgrad
