#pragma once
#include <concepts>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <distgrad/core/error.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/core/services.hpp>
#include <distgrad/core/unique_function.hpp>
#include <distgrad/wire/reader.hpp>
#include <distgrad/wire/signature.hpp>
#include <distgrad/wire/writer.hpp>

namespace distgrad {

/// Where values are written to. @threads one thread at a time.
struct Encoder {
  Writer& writer;
  /// The tensors among the values, in the order they were met; a value refers to them by number.
  std::vector<at::Tensor>& tensors;
  /// The worker the values go to.
  WorkerId peer;
  Services const& services;
  /// Where a codec that changes state here says how to undo it, should the message be certain never
  /// to be decoded. Null where nobody would.
  std::vector<unique_function<void()>>* if_undelivered = nullptr;
};

/// Something that must have happened before user code may see decoded values. Called once with a
/// function to call, once and on any thread, when it has happened: with null, or with the error.
using Condition = unique_function<void(unique_function<void(std::exception_ptr)>)>;

/// Where values are read from. @threads one thread at a time.
struct Decoder {
  Reader& reader;
  /// The tensors of the message.
  std::span<at::Tensor const> tensors;
  /// The worker the values come from.
  WorkerId peer;
  Services const& services;
  std::vector<Condition> conditions = {};

  /// Makes user code wait for `condition`; for a codec whose value needs an answer first.
  void hold(Condition condition) { conditions.push_back(std::move(condition)); }
};

/// How values of `T` travel. Specialise it for a type that has no codec yet:
///
///     template <> struct distgrad::Codec<Color> {
///       static constexpr std::uint64_t signature = distgrad::fnv1a("Color");
///       static void encode(Encoder& to, Color const& value);   // writes at least one byte
///       static Color decode(Decoder& from);                    // throws Error(errc::bad_value)
///     };
///
/// `signature` names the type in the signature of a function, and is compared before a call is
/// accepted. `decode` must survive any bytes: `Reader` never runs past the end, lengths go through
/// `Reader::count`, and a codec of a type that contains itself bounds its depth.
template <class T>
struct Codec;

/// Types that can be sent.
template <class T>
concept Encodable =
    std::same_as<T, std::remove_cvref_t<T>> && requires(Encoder& to, T const& value) {
      { Codec<T>::signature } -> std::convertible_to<std::uint64_t>;
      { Codec<T>::encode(to, value) } -> std::same_as<void>;
    };

/// Types that can be received.
template <class T>
concept Decodable =
    std::same_as<T, std::remove_cvref_t<T>> && std::movable<T> && requires(Decoder& from) {
      { Codec<T>::signature } -> std::convertible_to<std::uint64_t>;
      { Codec<T>::decode(from) } -> std::same_as<T>;
    };

/// A compile-time check whose message says what to do about `T`.
template <class T>
constexpr bool require_encodable() {
  static_assert(!std::is_pointer_v<T>,
                "distgrad sends values, no pointers: pass the object itself "
                "or an RRef to it");
  static_assert(Encodable<T>,
                "distgrad does not know how to send this type. Make it an aggregate of at most 16 "
                "sendable fields (no base class, no C array), or give it a friend "
                "`auto distgrad_fields(T& v) { return std::tie(v.a, v.b); }`, or specialise "
                "distgrad::Codec<T>");
  return true;
}

/// A compile-time check whose message says what to do about `T`.
template <class T>
constexpr bool require_decodable() {
  static_assert(!std::is_pointer_v<T> && !std::is_reference_v<T>,
                "distgrad receives values, no pointers or references: take the object itself or "
                "an RRef to it");
  static_assert(Decodable<T>,
                "distgrad does not know how to receive this type. Views such as std::string_view "
                "can only be sent: receive the owning type. Otherwise make it a movable aggregate "
                "of at most 16 receivable fields (no base class, no C array), or give it a default "
                "constructor and a friend `auto distgrad_fields(T& v) { return std::tie(v.a, v.b); "
                "}`, or specialise distgrad::Codec<T>");
  return true;
}

namespace detail {

[[noreturn]] inline void bad_value(std::string const& what) {
  throw Error(errc::bad_value, "a received value " + what);
}

// Ends a decoder whose input was cut off or whose counts did not fit.
inline void require_ok(Decoder const& from) {
  if (!from.reader.ok()) bad_value("is cut off, or a length in it is too large");
}

}  // namespace detail
}  // namespace distgrad
