#pragma once
#include <concepts>
#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <variant>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <distgrad/serialize/fields.hpp>

namespace distgrad {
namespace detail {

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_variant = false;
template <class... T>
inline constexpr bool is_variant<std::variant<T...>> = true;

template <class T>
concept MapLike = std::ranges::input_range<T&> && requires { typename T::mapped_type; };
/// Elements that can be replaced where they are: no views of others' memory, no sets.
template <class T>
concept OwningRange = std::ranges::input_range<T&> && !std::ranges::view<T> &&
                      std::is_lvalue_reference_v<std::ranges::range_reference_t<T&>> &&
                      !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<T&>>>;

}  // namespace detail

/// Calls `visit(at::Tensor&)` for every tensor in `value`, in a fixed order: in containers, tuples,
/// optionals, variants, aggregates and types with `distgrad_fields`, however deep. It does not look
/// behind pointers and references to other workers, nor into types with private members.
template <class T, class Visit>
void visit_tensors(T& value, Visit&& visit) {
  [[maybe_unused]] auto const each = [&](auto&... parts) { (visit_tensors(parts, visit), ...); };
  if constexpr (std::same_as<T, at::Tensor>) {
    visit(value);
  } else if constexpr (detail::HasFieldsHook<T>) {
    std::apply(each, distgrad_fields(value));
  } else if constexpr (detail::is_optional<T>) {
    if (value) visit_tensors(*value, visit);
  } else if constexpr (detail::is_variant<T>) {
    std::visit([&](auto& alternative) { visit_tensors(alternative, visit); }, value);
  } else if constexpr (detail::MapLike<T>) {
    for (auto& [key, mapped] : value) visit_tensors(mapped, visit);
  } else if constexpr (detail::OwningRange<T>) {
    if constexpr (std::is_class_v<std::ranges::range_value_t<T&>>) {
      for (auto& element : value) visit_tensors(element, visit);
    }
  } else if constexpr (detail::TupleLike<T>) {
    std::apply(each, value);
  } else if constexpr (detail::Reflectable<T>) {
    std::apply(each, detail::tie_fields(value));
  }
}

}  // namespace distgrad
