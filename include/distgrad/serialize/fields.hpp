#pragma once
#include <cstddef>
#include <cstdlib>
#include <tuple>
#include <type_traits>
#include <utility>

// The fields of an aggregate, found by the language alone: how many initializers it takes says how
// many names a structured binding needs.

namespace distgrad::detail {

inline constexpr std::size_t max_fields = 16;

// Initializes any field. Never called; it has a body because a type without linkage, whose
// conversion nobody else could define, must not leave it undefined.
struct AnyField {
  template <class T>
  operator T() const noexcept {
    std::abort();
  }
};
// Initializes only a base class of `T`.
template <class T>
struct AnyBase {
  template <class U>
    requires(std::is_base_of_v<U, T> && !std::is_same_v<U, T>)
  operator U() const noexcept {
    std::abort();
  }
};
template <std::size_t>
using AnyFieldAt = AnyField;

template <class T, std::size_t... I>
constexpr bool takes_fields(std::index_sequence<I...>) {
  return requires { T{AnyFieldAt<I>{}...}; };
}

// Whether `T` takes `Before` initializers, then two in braces, then `After` more.
template <class T, std::size_t... Before, std::size_t... After>
constexpr bool takes_pair(std::index_sequence<Before...>, std::index_sequence<After...>) {
  return requires { T{AnyFieldAt<Before>{}..., {AnyField{}, AnyField{}}, AnyFieldAt<After>{}...}; };
}

template <class T>
constexpr std::size_t count_initializers() {
  return []<std::size_t... N>(std::index_sequence<N...>) {
    std::size_t most = 0;
    ((takes_fields<T>(std::make_index_sequence<N>()) ? void(most = N) : void()), ...);
    return most;
  }(std::make_index_sequence<max_fields + 2>());
}

// A C array counts once for each element, unless they stand in braces of their own: then fewer
// initializers may follow than after any other field.
template <class T, std::size_t Count, std::size_t Index>
constexpr bool is_array_field() {
  using Before = std::make_index_sequence<Index>;
  return takes_pair<T>(Before(), std::index_sequence<>()) &&
         !takes_pair<T>(Before(), std::make_index_sequence<Count - Index - 1>());
}

template <class T>
constexpr bool has_array_field() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return (is_array_field<T, sizeof...(I), I>() || ...);
  }(std::make_index_sequence<count_initializers<T>()>());
}

template <class T>
concept TupleLike = requires { std::tuple_size<T>::value; };

template <class T>
concept HasFieldsHook = requires(T& value) { distgrad_fields(value); };

// Aggregates whose fields `tie_fields` can name.
template <class T>
concept Reflectable = std::is_class_v<T> && std::is_aggregate_v<T> && !TupleLike<T> &&
                      !HasFieldsHook<T> && !requires { T{AnyBase<T>{}}; } &&
                      count_initializers<T>() <= max_fields && !has_array_field<T>();

// References to all fields, in order of declaration.
template <class T>
constexpr auto tie_fields(T& value) {
  constexpr auto n = count_initializers<std::remove_const_t<T>>();
  if constexpr (n == 0) {
    return std::tuple<>();
  } else if constexpr (n == 1) {
    auto& [a] = value;
    return std::tie(a);
  } else if constexpr (n == 2) {
    auto& [a, b] = value;
    return std::tie(a, b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = value;
    return std::tie(a, b, c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = value;
    return std::tie(a, b, c, d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = value;
    return std::tie(a, b, c, d, e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, f] = value;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, f, g] = value;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (n == 8) {
    auto& [a, b, c, d, e, f, g, h] = value;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = value;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else if constexpr (n == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (n == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (n == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (n == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (n == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o);
  } else if constexpr (n == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q] = value;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q);
  }
}

template <class Tie>
struct FieldTypes;
template <class... F>
struct FieldTypes<std::tuple<F&...>> {
  using type = std::tuple<std::remove_const_t<F>...>;
};

// A `std::tuple` of the fields' types.
template <class T>
using field_types_t = typename FieldTypes<decltype(tie_fields(std::declval<T&>()))>::type;
template <class T>
using hook_field_types_t = typename FieldTypes<decltype(distgrad_fields(std::declval<T&>()))>::type;

}  // namespace distgrad::detail
