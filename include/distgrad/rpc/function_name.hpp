#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>

#include <distgrad/config.hpp>
#include <distgrad/wire/signature.hpp>

namespace distgrad::detail {

/// What the compiler prints for the template argument of this function, decorations included.
template <class T>
constexpr std::string_view pretty_type() {
  return __PRETTY_FUNCTION__;
}

/// Cuts the template argument out of a compiler's function text: g++ writes
/// `... [with T = ns::C; std::string_view = ...]`, clang `... [T = ns::C]`.
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

/// A type that has `F` in its mangled name, which g++ and clang write alike, with the arguments of
/// an instance of a function template. (Printed, clang leaves those out.)
template <auto F>
struct FunctionTag {};

/// The name of the function in a demangled `FunctionTag`: qualified, with template arguments,
/// without return type, parameters, spaces and `&`; unnamed namespaces are `{anonymous}`.
std::string name_in_tag(std::string_view demangled);
std::string demangled(char const* type_name);

/// The name by which other workers call `F`. A function object may have a static `function_name()`.
/// A closure has no name of its own: it gets its mangled type, which compilers with the same ABI
/// agree on.
template <auto F>
std::string const& function_name() {
  using Type = std::remove_cvref_t<decltype(F)>;
  static std::string const name = [] {
    if constexpr (requires { Type::function_name(); }) {
      return Type::function_name();
    } else if constexpr (std::is_class_v<Type>) {
      return std::string("lambda:") + typeid(Type).name();
    } else {
      return name_in_tag(demangled(typeid(FunctionTag<F>).name()));
    }
  }();
  return name;
}

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rpc/impl/function_name.ipp>
#endif
