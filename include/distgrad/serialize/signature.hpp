#pragma once
#include <cstdint>
#include <string_view>

namespace distgrad {

/// FNV-1a over `text`, starting from `seed`: the same number for every compiler.
/// @source http://www.isthe.com/chongo/tech/comp/fnv/
constexpr std::uint64_t fnv1a(std::string_view text,
                              std::uint64_t seed = 0xcbf29ce484222325ull) {
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

}  // namespace distgrad
