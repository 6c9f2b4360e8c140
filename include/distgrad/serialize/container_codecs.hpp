#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <distgrad/serialize/coder.hpp>
#include <distgrad/serialize/scalar_codecs.hpp>

namespace distgrad {
namespace detail {

// Numbers that may be copied as a block. A bool from a peer must be looked at.
template <class T>
concept BlockNumber = PortableNumber<T> && !std::same_as<T, bool>;

template <class Container>
void encode_elements(Encoder& to, Container const& values) {
  to.writer.number<std::uint64_t>(values.size());
  for (auto const& value : values) Codec<typename Container::value_type>::encode(to, value);
}

// A set or map: memory grows with what really was read, not with what was announced.
template <class Container, class Element>
Container decode_unique(Decoder& from) {
  Container values;
  auto const count = from.reader.count();
  for (std::size_t i = 0; i < count; ++i) {
    values.insert(Codec<Element>::decode(from));
    require_ok(from);
  }
  if (values.size() != count) bad_value("has the same key twice");
  return values;
}

template <class Set, class Key>
struct SetCodec {
  static constexpr std::uint64_t signature = compose_signature("set", Codec<Key>::signature);
  static void encode(Encoder& to, Set const& values) { encode_elements(to, values); }
  static Set decode(Decoder& from)
    requires Decodable<Key>
  {
    return decode_unique<Set, Key>(from);
  }
};

template <class Map, class Key, class Value>
struct MapCodec {
  static constexpr std::uint64_t signature =
      compose_signature("map", Codec<Key>::signature, Codec<Value>::signature);
  static void encode(Encoder& to, Map const& values) {
    to.writer.number<std::uint64_t>(values.size());
    for (auto const& [key, value] : values) {
      Codec<Key>::encode(to, key);
      Codec<Value>::encode(to, value);
    }
  }
  static Map decode(Decoder& from)
    requires Decodable<Key> && Decodable<Value>
  {
    return decode_unique<Map, std::pair<Key, Value>>(from);
  }
};

template <class Tuple, class... T>
struct TupleCodec {
  static constexpr std::uint64_t signature = compose_signature("tuple", Codec<T>::signature...);
  static void encode(Encoder& to, Tuple const& values) {
    if constexpr (sizeof...(T) == 0) Codec<Void>::encode(to, {});
    std::apply([&](T const&... value) { (Codec<T>::encode(to, value), ...); }, values);
  }
  static Tuple decode([[maybe_unused]] Decoder& from)
    requires(Decodable<T> && ...)
  {
    if constexpr (sizeof...(T) == 0) Codec<Void>::decode(from);
    return Tuple{Codec<T>::decode(from)...};  // braces: from left to right
  }
};

}  // namespace detail

template <Encodable T>
struct Codec<std::optional<T>> {
  static constexpr std::uint64_t signature = compose_signature("optional", Codec<T>::signature);
  static void encode(Encoder& to, std::optional<T> const& value) {
    to.writer.number(static_cast<std::uint8_t>(value.has_value()));
    if (value) Codec<T>::encode(to, *value);
  }
  static std::optional<T> decode(Decoder& from)
    requires Decodable<T>
  {
    auto const flag = from.reader.number<std::uint8_t>();
    if (flag > 1) detail::bad_value("is an optional that neither has nor lacks a value");
    if (flag == 0) return std::nullopt;
    return Codec<T>::decode(from);
  }
};

template <Encodable T, class Allocator>
struct Codec<std::vector<T, Allocator>> {
  using Vector = std::vector<T, Allocator>;
  static constexpr std::uint64_t signature = compose_signature("vector", Codec<T>::signature);
  static void encode(Encoder& to, Vector const& values) {
    if constexpr (detail::BlockNumber<T>) {
      to.writer.number<std::uint64_t>(values.size());
      to.writer.raw(std::as_bytes(std::span(values)));
    } else {
      detail::encode_elements(to, values);
    }
  }
  static Vector decode(Decoder& from)
    requires Decodable<T>
  {
    Vector values;
    if constexpr (detail::BlockNumber<T>) {
      auto const bytes = from.reader.raw(from.reader.count(sizeof(T)) * sizeof(T));
      values.resize(bytes.size() / sizeof(T));
      if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    } else {
      // Memory grows with what really was read: an announced count alone takes none.
      auto const count = from.reader.count();
      for (std::size_t i = 0; i < count; ++i) {
        values.push_back(Codec<T>::decode(from));
        detail::require_ok(from);
      }
    }
    return values;
  }
};

template <Encodable T, std::size_t Size>
struct Codec<std::array<T, Size>> {
  static constexpr std::uint64_t signature = compose_signature("array", Codec<T>::signature, Size);
  static void encode(Encoder& to, std::array<T, Size> const& values) {
    if constexpr (Size == 0) Codec<Void>::encode(to, {});
    for (auto const& value : values) Codec<T>::encode(to, value);
  }
  static std::array<T, Size> decode([[maybe_unused]] Decoder& from)
    requires Decodable<T>
  {
    if constexpr (Size == 0) Codec<Void>::decode(from);
    return [&]<std::size_t... I>(std::index_sequence<I...>) -> std::array<T, Size> {
      return {(void(I), Codec<T>::decode(from))...};
    }(std::make_index_sequence<Size>());
  }
};

template <Encodable Key, class Compare, class Allocator>
struct Codec<std::set<Key, Compare, Allocator>>
    : detail::SetCodec<std::set<Key, Compare, Allocator>, Key> {};
template <Encodable Key, class Hash, class Equal, class Allocator>
struct Codec<std::unordered_set<Key, Hash, Equal, Allocator>>
    : detail::SetCodec<std::unordered_set<Key, Hash, Equal, Allocator>, Key> {};

template <Encodable Key, Encodable Value, class Compare, class Allocator>
struct Codec<std::map<Key, Value, Compare, Allocator>>
    : detail::MapCodec<std::map<Key, Value, Compare, Allocator>, Key, Value> {};
template <Encodable Key, Encodable Value, class Hash, class Equal, class Allocator>
struct Codec<std::unordered_map<Key, Value, Hash, Equal, Allocator>>
    : detail::MapCodec<std::unordered_map<Key, Value, Hash, Equal, Allocator>, Key, Value> {};

template <Encodable... T>
struct Codec<std::tuple<T...>> : detail::TupleCodec<std::tuple<T...>, T...> {};
template <Encodable First, Encodable Second>
struct Codec<std::pair<First, Second>>
    : detail::TupleCodec<std::pair<First, Second>, First, Second> {};

template <Encodable... T>
struct Codec<std::variant<T...>> {
  using Variant = std::variant<T...>;
  static constexpr std::uint64_t signature = compose_signature("variant", Codec<T>::signature...);
  static void encode(Encoder& to, Variant const& value) {
    if (value.valueless_by_exception()) {
      throw Error(errc::invalid_argument, "a variant without a value cannot be sent");
    }
    to.writer.number(static_cast<std::uint32_t>(value.index()));
    std::visit([&to]<class V>(V const& held) { Codec<V>::encode(to, held); }, value);
  }
  static Variant decode(Decoder& from)
    requires(Decodable<T> && ...)
  {
    auto const index = from.reader.number<std::uint32_t>();
    if (index >= sizeof...(T)) detail::bad_value("is a variant with an alternative it lacks");
    return decode_alternative(from, index, std::index_sequence_for<T...>());
  }

 private:
  template <std::size_t... I>
  static Variant decode_alternative(Decoder& from, std::size_t index, std::index_sequence<I...>) {
    std::optional<Variant> value;
    ((index == I ? void(value.emplace(std::in_place_index<I>, Codec<T>::decode(from))) : void()),
     ...);
    return std::move(*value);
  }
};

}  // namespace distgrad
