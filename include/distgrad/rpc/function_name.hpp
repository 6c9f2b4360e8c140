#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>

#include <distgrad/config.hpp>
#include <distgrad/wire/signature.hpp>

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

/// Characters that `text` spends at its start on an unnamed namespace; 0 if it names something.
constexpr std::size_t unnamed_namespace(std::string_view text) {
  for (std::string_view const spelling : {"(anonymous namespace)", "{anonymous}"}) {
    if (text.starts_with(spelling)) return spelling.size();
  }
  return 0;
}

/// Name of `T` as the compiler writes it; for messages only.
template <class T>
constexpr std::string_view type_name() {
  return template_argument(pretty_type<T>());
}

/// A hash of a type's name that does not depend on how compilers write spaces and unnamed
/// namespaces.
constexpr std::uint64_t type_name_hash(std::string_view name) {
  auto hash = fnv1a("type");
  while (!name.empty()) {
    if (auto const unnamed = unnamed_namespace(name); unnamed != 0) {
      hash = fnv1a("{anonymous}", hash);
      name.remove_prefix(unnamed);
      continue;
    }
    if (name.front() != ' ') hash = fnv1a(name.substr(0, 1), hash);
    name.remove_prefix(1);
  }
  return hash;
}

/// The qualified name in one spelling for all compilers: without spaces, `&` and parentheses.
std::string normalized_name(std::string_view qualified);

/// The name by which other workers call `F`. A function object may have a static `function_name()`.
/// A closure has no name of its own: it gets its mangled type, which compilers with the same ABI
/// agree on.
template <auto F>
std::string function_name() {
  using Type = std::remove_cvref_t<decltype(F)>;
  if constexpr (requires { Type::function_name(); }) {
    return Type::function_name();
  } else if constexpr (std::is_class_v<Type>) {
    return std::string("lambda:") + typeid(Type).name();
  } else {
    return normalized_name(template_argument(pretty_value<F>()));
  }
}

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rpc/impl/function_name.ipp>
#endif
