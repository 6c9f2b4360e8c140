#pragma once
#include <cstdint>
#include <tuple>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <distgrad/serialize/aggregate_codecs.hpp>
#include <distgrad/serialize/coder.hpp>
#include <distgrad/serialize/container_codecs.hpp>
#include <distgrad/serialize/scalar_codecs.hpp>

namespace distgrad {

/// A tensor among values is its number in the message's list of tensors; `SerializerPolicy` moves
/// that list. Undefined tensors arrive undefined; two equal handles arrive as two tensors.
template <>
struct Codec<at::Tensor> {
  static constexpr std::uint64_t signature = fnv1a("tensor");
  static void encode(Encoder& to, at::Tensor const& value) {
    to.writer.number(static_cast<std::uint32_t>(to.tensors.size()));
    to.tensors.push_back(value);
  }
  static at::Tensor decode(Decoder& from) {
    auto const index = from.reader.number<std::uint32_t>();
    detail::require_ok(from);
    if (index >= from.tensors.size()) detail::bad_value("names a tensor the message does not have");
    return from.tensors[index];
  }
};

/// Writes `values` one after the other.
/// @throws Error whatever a codec throws.
template <class... T>
void encode_values(Encoder& to, T const&... values) {
  static_assert((require_encodable<T>() && ...));
  (Codec<T>::encode(to, values), ...);
}

/// Reads what `encode_values` wrote.
/// @throws Error `errc::bad_value` when the bytes do not hold values of these types.
template <class... T>
std::tuple<T...> decode_values(Decoder& from) {
  static_assert((require_decodable<T>() && ...));
  std::tuple<T...> values{Codec<T>::decode(from)...};  // braces: from left to right
  detail::require_ok(from);
  return values;
}

/// One number for a list of types, the same for every compiler.
template <class... T>
inline constexpr std::uint64_t signature_of = compose_signature("list", Codec<T>::signature...);

}  // namespace distgrad
