#pragma once
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>

#include <distgrad/config.hpp>

namespace distgrad::detail {

/// What the compiler prints for a template argument of this function, decorations included.
template <auto F>
constexpr std::string_view pretty_value() {
  return __PRETTY_FUNCTION__;
}
template <class T>
constexpr std::string_view pretty_type() {
  return __PRETTY_FUNCTION__;
}

/// Cuts the template argument out of a compiler's function text: g++ writes
/// `... [with auto F = ns::f; std::string_view = ...]`, clang `... [F = &ns::f]`.
constexpr std::string_view template_argument(std::string_view text) {
  auto const begin = text.find(" = ") + 3;
  auto end = text.find("; std::string_view", begin);
  if (end == std::string_view::npos) end = text.rfind(']');
  return text.substr(begin, end - begin);
}

/// Name of `T` as the compiler writes it; for messages only.
template <class T>
constexpr std::string_view type_name() {
  return template_argument(pretty_type<T>());
}

/// The qualified name in one spelling for all compilers: without spaces, `&` and parentheses.
std::string normalized_name(std::string_view qualified);

/// The name by which other workers call `F`. A closure has no name of its own: it gets its mangled
/// type, which compilers with the same ABI agree on.
template <auto F>
std::string function_name() {
  using Type = std::remove_cvref_t<decltype(F)>;
  if constexpr (std::is_class_v<Type>) {
    return std::string("lambda:") + typeid(Type).name();
  } else {
    return normalized_name(template_argument(pretty_value<F>()));
  }
}

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rpc/impl/function_name.ipp>
#endif
