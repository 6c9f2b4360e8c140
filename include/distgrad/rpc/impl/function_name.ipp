#pragma once
#include <cxxabi.h>
#include <cstdlib>
#include <memory>

#include <distgrad/rpc/function_name.hpp>

namespace distgrad::detail {

/// The part of `text` that names the function, out of `R ns::f<T>(A) const` or `ns::f`; all of it
/// where that is not the form.
inline std::string_view without_signature(std::string_view text) {
  std::size_t begin = 0, end = text.size();
  int depth = 0;
  for (std::size_t i = 0; i < end; ++i) {
    if (auto const unnamed = unnamed_namespace(text.substr(i)); unnamed != 0) {
      i += unnamed - 1;
    } else if (text[i] == '<') {
      ++depth;
    } else if (text[i] == '>') {
      --depth;
    } else if (depth == 0 && text[i] == ' ') {
      begin = i + 1;
    } else if (depth == 0 && text[i] == '(') {
      end = i;
    }
  }
  return depth == 0 && begin < end ? text.substr(begin, end - begin) : text;
}

DISTGRAD_DECL std::string name_in_tag(std::string_view demangled) {
  auto const begin = demangled.find('<') + 1;
  auto text = demangled.substr(begin, demangled.rfind('>') - begin);
  if (text.starts_with('&')) text.remove_prefix(1);
  if (text.starts_with('(') && text.ends_with(')') && unnamed_namespace(text) == 0) {
    text = text.substr(1, text.size() - 2);
  }
  std::string name;
  for (text = without_signature(text); !text.empty();) {
    if (auto const unnamed = unnamed_namespace(text); unnamed != 0) {
      name += "{anonymous}";
      text.remove_prefix(unnamed);
      continue;
    }
    char const c = text.front();
    if (c != ' ' && c != '&' && c != '(' && c != ')') name += c;
    text.remove_prefix(1);
  }
  return name;
}

DISTGRAD_DECL std::string demangled(char const* type_name) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> const text(
      abi::__cxa_demangle(type_name, nullptr, nullptr, &status), &std::free);
  return text ? text.get() : type_name;
}

}  // namespace distgrad::detail
