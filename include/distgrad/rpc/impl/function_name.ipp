#pragma once
#include <distgrad/rpc/function_name.hpp>

namespace distgrad::detail {

DISTGRAD_DECL std::string normalized_name(std::string_view qualified) {
  constexpr std::string_view clang_anonymous = "(anonymous namespace)";
  std::string name;
  while (!qualified.empty()) {
    if (qualified.starts_with(clang_anonymous)) {
      name += "{anonymous}";  // as g++ spells it
      qualified.remove_prefix(clang_anonymous.size());
      continue;
    }
    char const c = qualified.front();
    if (c != ' ' && c != '&' && c != '(' && c != ')') name += c;
    qualified.remove_prefix(1);
  }
  return name;
}

}  // namespace distgrad::detail
