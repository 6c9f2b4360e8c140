#pragma once
#include <chrono>
#include <complex>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include <c10/core/Device.h>
#include <c10/core/Scalar.h>

#include <distgrad/core/worker_info.hpp>
#include <distgrad/serialize/coder.hpp>

namespace distgrad {

/// The result of a function that returns nothing.
struct Void {
  friend constexpr bool operator==(Void, Void) = default;
};

namespace detail {

// Types of one value: nothing to say but a byte that counts them.
template <class T>
struct UnitCodec {
  static void encode(Encoder& to, T) { to.writer.number(std::uint8_t{0}); }
  static T decode(Decoder& from) {
    if (from.reader.number<std::uint8_t>() != 0) bad_value("that has no content has content");
    return {};
  }
};

template <class Id>
struct IdCodec {
  static void encode(Encoder& to, Id const& value) { to.writer.id(value); }
  static Id decode(Decoder& from) { return from.reader.id<Id>(); }
};

}  // namespace detail

template <detail::PortableNumber T>
struct Codec<T> {
  static constexpr std::uint64_t signature = fnv1a(detail::number_name<T>());
  static void encode(Encoder& to, T value) { to.writer.number(value); }
  static T decode(Decoder& from) { return from.reader.number<T>(); }
};

/// Enumerations travel as their underlying number. A peer may send one that is no enumerator.
template <class T>
  requires std::is_enum_v<T>
struct Codec<T> {
  using Number = std::underlying_type_t<T>;
  static constexpr std::uint64_t signature = compose_signature("enum", Codec<Number>::signature);
  static void encode(Encoder& to, T value) { to.writer.number(static_cast<Number>(value)); }
  static T decode(Decoder& from) { return static_cast<T>(from.reader.number<Number>()); }
};

template <>
struct Codec<Void> : detail::UnitCodec<Void> {
  static constexpr std::uint64_t signature = fnv1a("void");
};
template <>
struct Codec<std::monostate> : detail::UnitCodec<std::monostate> {
  static constexpr std::uint64_t signature = fnv1a("monostate");
};

template <>
struct Codec<std::string> {
  static constexpr std::uint64_t signature = fnv1a("string");
  static void encode(Encoder& to, std::string_view value) {
    to.writer.number<std::uint64_t>(value.size());
    to.writer.raw(std::as_bytes(std::span(value)));
  }
  static std::string decode(Decoder& from) {
    auto const bytes = from.reader.raw(from.reader.count());
    return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
  }
};
/// Sent as a string; cannot be received, since nothing would own the characters.
template <>
struct Codec<std::string_view> {
  static constexpr std::uint64_t signature = Codec<std::string>::signature;
  static void encode(Encoder& to, std::string_view value) { Codec<std::string>::encode(to, value); }
};

template <std::floating_point T>
  requires detail::PortableNumber<T>
struct Codec<std::complex<T>> {
  static constexpr std::uint64_t signature = compose_signature("complex", Codec<T>::signature);
  static void encode(Encoder& to, std::complex<T> value) {
    to.writer.number(value.real());
    to.writer.number(value.imag());
  }
  static std::complex<T> decode(Decoder& from) {
    auto const real = from.reader.number<T>();
    return {real, from.reader.number<T>()};
  }
};

template <class Rep, class Period>
  requires detail::PortableNumber<Rep>
struct Codec<std::chrono::duration<Rep, Period>> {
  using Duration = std::chrono::duration<Rep, Period>;
  static constexpr std::uint64_t signature =
      compose_signature("duration", Codec<Rep>::signature, Period::num, Period::den);
  static void encode(Encoder& to, Duration value) { to.writer.number(value.count()); }
  static Duration decode(Decoder& from) { return Duration(from.reader.number<Rep>()); }
};

template <>
struct Codec<WorkerId> : detail::IdCodec<WorkerId> {
  static constexpr std::uint64_t signature = fnv1a("worker_id");
};
template <class Tag>
struct Codec<GlobalId<Tag>> : detail::IdCodec<GlobalId<Tag>> {
  static constexpr std::uint64_t signature = fnv1a("global_id");
};
template <>
struct Codec<PassId> : detail::IdCodec<PassId> {
  static constexpr std::uint64_t signature = fnv1a("pass_id");
};

template <>
struct Codec<WorkerInfo> {
  static constexpr std::uint64_t signature = fnv1a("worker_info");
  static void encode(Encoder& to, WorkerInfo const& value) {
    to.writer.text(value.name);
    to.writer.id(value.id);
    to.writer.number(value.incarnation.value);
  }
  static WorkerInfo decode(Decoder& from) {
    WorkerInfo info;
    info.name = from.reader.text();
    info.id = from.reader.id<WorkerId>();
    info.incarnation.value = from.reader.number<std::uint32_t>();
    return info;
  }
};

template <>
struct Codec<c10::Device> {
  static constexpr std::uint64_t signature = fnv1a("device");
  static void encode(Encoder& to, c10::Device value) {
    to.writer.number(static_cast<std::int8_t>(value.type()));
    to.writer.number(static_cast<std::int8_t>(value.index()));
  }
  static c10::Device decode(Decoder& from) {
    auto const number = from.reader.number<std::int8_t>();
    auto const index = from.reader.number<std::int8_t>();
    auto const type = static_cast<c10::DeviceType>(number);
    if (number < 0 || type >= c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES || index < -1 ||
        (type == c10::DeviceType::CPU && index > 0)) {
      detail::bad_value("names an unknown device");
    }
    return {type, index};
  }
};

/// One of libtorch's scalars: bool, 64-bit integer, double or complex double.
template <>
struct Codec<c10::Scalar> {
  static constexpr std::uint64_t signature = fnv1a("scalar");
  static void encode(Encoder& to, c10::Scalar const& value) {
    if (value.isComplex()) {
      auto const number = value.toComplexDouble();
      put(to, Kind::complex, number.real());
      to.writer.number(number.imag());
    } else if (value.isFloatingPoint()) {
      put(to, Kind::real, value.toDouble());
    } else if (value.isBoolean()) {
      put(to, Kind::boolean, value.toBool());
    } else {
      put(to, Kind::integer, value.toLong());
    }
  }
  static c10::Scalar decode(Decoder& from) {
    switch (static_cast<Kind>(from.reader.number<std::uint8_t>())) {
      case Kind::boolean: return from.reader.number<bool>();
      case Kind::integer: return from.reader.number<std::int64_t>();
      case Kind::real: return from.reader.number<double>();
      case Kind::complex: {
        auto const real = from.reader.number<double>();
        return c10::complex<double>(real, from.reader.number<double>());
      }
    }
    detail::bad_value("is a scalar of unknown kind");
  }

 private:
  enum class Kind : std::uint8_t { boolean, integer, real, complex };
  template <class T>
  static void put(Encoder& to, Kind kind, T value) {
    to.writer.number(static_cast<std::uint8_t>(kind));
    to.writer.number(value);
  }
};

}  // namespace distgrad
