#pragma once
#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <distgrad/core/result.hpp>
#include <distgrad/raw/raw_tensor.hpp>
#include <distgrad/wire/reader.hpp>
#include <distgrad/wire/signature.hpp>
#include <distgrad/wire/writer.hpp>

namespace distgrad {

/// Where raw values are written to: bytes, and the tensors among them. @threads one at a time.
struct RawEncoder {
  Writer& writer;
  std::vector<RawTensor>& tensors;
};

/// Where raw values are read from. A value that is not there reads as an empty one, and turns
/// `reader.ok()` false. @threads one at a time.
struct RawDecoder {
  Reader& reader;
  std::span<RawTensor const> tensors;
};

/// How values of `T` travel between a raw worker and an engine: for each type the bytes and the
/// signature of `Codec<T>`, whose types these are: numbers, `std::string`, `RawTensor` for
/// `at::Tensor`, `std::vector`, `std::tuple` and `std::pair` of these.
template <class T>
struct RawCodec;

/// Types that a raw worker sends and receives.
template <class T>
concept RawValue = requires(RawEncoder& to, RawDecoder& from, T const& value) {
  { RawCodec<T>::signature } -> std::convertible_to<std::uint64_t>;
  { RawCodec<T>::encode(to, value) } -> std::same_as<void>;
  { RawCodec<T>::decode(from) } -> std::same_as<T>;
};

template <detail::PortableNumber T>
struct RawCodec<T> {
  static constexpr std::uint64_t signature = fnv1a(detail::number_name<T>());
  static void encode(RawEncoder& to, T value) { to.writer.number(value); }
  static T decode(RawDecoder& from) { return from.reader.number<T>(); }
};

template <>
struct RawCodec<std::string> {
  static constexpr std::uint64_t signature = fnv1a("string");
  static void encode(RawEncoder& to, std::string const& value) {
    to.writer.number<std::uint64_t>(value.size());
    to.writer.raw(std::as_bytes(std::span(value)));
  }
  static std::string decode(RawDecoder& from) {
    auto const bytes = from.reader.raw(from.reader.count());
    return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
  }
};

/// A tensor among values is its number in the message's list.
template <>
struct RawCodec<RawTensor> {
  static constexpr std::uint64_t signature = fnv1a("tensor");
  static void encode(RawEncoder& to, RawTensor const& value) {
    to.writer.number(static_cast<std::uint32_t>(to.tensors.size()));
    to.tensors.push_back(value);
  }
  static RawTensor decode(RawDecoder& from) {
    auto const index = from.reader.number<std::uint32_t>();
    if (from.reader.ok() && index < from.tensors.size()) return from.tensors[index];
    from.reader.fail();
    return {};
  }
};

template <RawValue T>
struct RawCodec<std::vector<T>> {
  static constexpr std::uint64_t signature = compose_signature("vector", RawCodec<T>::signature);
  static void encode(RawEncoder& to, std::vector<T> const& values) {
    to.writer.number<std::uint64_t>(values.size());
    for (T const& value : values) RawCodec<T>::encode(to, value);
  }
  static std::vector<T> decode(RawDecoder& from) {
    std::vector<T> values;  // grows with what really was read
    for (auto left = from.reader.count(); left > 0 && from.reader.ok(); --left) {
      values.push_back(RawCodec<T>::decode(from));
    }
    return values;
  }
};

namespace detail {

template <class Tuple, class... T>
struct RawTupleCodec {
  static_assert(sizeof...(T) > 0, "an empty tuple is no value for a raw worker");
  static constexpr std::uint64_t signature = compose_signature("tuple", RawCodec<T>::signature...);
  static void encode(RawEncoder& to, Tuple const& values) {
    std::apply([&](T const&... value) { (RawCodec<T>::encode(to, value), ...); }, values);
  }
  static Tuple decode(RawDecoder& from) {
    return Tuple{RawCodec<T>::decode(from)...};  // braces: from left to right
  }
};

template <class T>
constexpr std::uint64_t raw_signature() {
  if constexpr (std::is_void_v<T>) {
    return fnv1a("void");
  } else {
    return RawCodec<T>::signature;
  }
}

}  // namespace detail

template <RawValue... T>
struct RawCodec<std::tuple<T...>> : detail::RawTupleCodec<std::tuple<T...>, T...> {};
template <RawValue First, RawValue Second>
struct RawCodec<std::pair<First, Second>>
    : detail::RawTupleCodec<std::pair<First, Second>, First, Second> {};

/// What a function takes and returns, as in `RawTensor(RawTensor, double)`.
template <class Function>
struct RawFunction;
template <class R, class... P>
struct RawFunction<R(P...)> {
  static_assert((RawValue<P> && ...) && (std::is_void_v<R> || RawValue<R>),
                "a raw worker sends and receives numbers, std::string, RawTensor, and std::vector, "
                "std::tuple and std::pair of these, by value");
  using Returned = R;
  using Arguments = std::tuple<P...>;
  /// The same number that an engine has for a function of these types.
  static constexpr std::uint64_t signature =
      compose_signature("function", detail::raw_signature<R>(), RawCodec<P>::signature...);

  template <class... Args>
  static void encode(RawEncoder& to, Args const&... arguments) {
    static_assert(sizeof...(Args) == sizeof...(P),
                  "the function takes another number of arguments");
    (RawCodec<P>::encode(to, static_cast<P const&>(arguments)), ...);
  }
  static Arguments decode([[maybe_unused]] RawDecoder& from) {
    return Arguments{RawCodec<P>::decode(from)...};  // braces: from left to right
  }
};

}  // namespace distgrad
