#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include <distgrad/serialize/coder.hpp>
#include <distgrad/serialize/container_codecs.hpp>
#include <distgrad/serialize/fields.hpp>

namespace distgrad {
namespace detail {

template <class Tuple>
struct AllFields;
template <class... F>
struct AllFields<std::tuple<F...>> {
  static constexpr bool encodable = (Encodable<F> && ...);
  static constexpr bool decodable = (Decodable<F> && ...);
  static constexpr std::uint64_t signature = compose_signature("struct", Codec<F>::signature...);

  template <class Tie>
  static void encode(Encoder& to, Tie const& fields) {
    if constexpr (sizeof...(F) == 0) Codec<Void>::encode(to, {});
    std::apply([&](auto&... field) { (Codec<F>::encode(to, field), ...); }, fields);
  }
  template <class T>
  static T decode_as(Decoder& from) {
    if constexpr (sizeof...(F) == 0) Codec<Void>::decode(from);
    return T{Codec<F>::decode(from)...};  // braces: from left to right
  }
  template <class Tie>
  static void decode_into(Decoder& from, Tie const& fields) {
    if constexpr (sizeof...(F) == 0) Codec<Void>::decode(from);
    std::apply([&](auto&... field) { ((field = Codec<F>::decode(from)), ...); }, fields);
  }
};

template <class T>
concept AggregateOfFields = Reflectable<T> && AllFields<field_types_t<T>>::encodable;
template <class T>
concept HookedFields = HasFieldsHook<T> && AllFields<hook_field_types_t<T>>::encodable;

}  // namespace detail

/// Aggregates of at most 16 fields, without base class, C arrays and reference members: the fields
/// in order. Two aggregates with the same field types have the same signature.
template <detail::AggregateOfFields T>
struct Codec<T> {
  using Fields = detail::AllFields<detail::field_types_t<T>>;
  static constexpr std::uint64_t signature = Fields::signature;
  static void encode(Encoder& to, T const& value) { Fields::encode(to, detail::tie_fields(value)); }
  static T decode(Decoder& from)
    requires(Fields::decodable)
  {
    return Fields::template decode_as<T>(from);
  }
};

/// Types with `distgrad_fields(T&)`, found by argument-dependent lookup, that returns `std::tie`
/// of what shall travel. To be received they need a default constructor.
template <detail::HookedFields T>
struct Codec<T> {
  using Fields = detail::AllFields<detail::hook_field_types_t<T>>;
  static constexpr std::uint64_t signature = Fields::signature;
  static void encode(Encoder& to, T const& value) {
    Fields::encode(to, distgrad_fields(const_cast<T&>(value)));  // only read
  }
  static T decode(Decoder& from)
    requires(Fields::decodable && std::default_initializable<T>)
  {
    T value{};
    Fields::decode_into(from, distgrad_fields(value));
    return value;
  }
};

}  // namespace distgrad
