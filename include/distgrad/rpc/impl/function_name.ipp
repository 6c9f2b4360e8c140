#pragma once
#include <distgrad/rpc/function_name.hpp>

namespace distgrad::detail {

DISTGRAD_DECL std::string normalized_name(std::string_view qualified) {
  std::string name;
  while (!qualified.empty()) {
    if (auto const unnamed = unnamed_namespace(qualified); unnamed != 0) {
      name += "{anonymous}";  // as g++ spells it
      qualified.remove_prefix(unnamed);
      continue;
    }
    char const c = qualified.front();
    if (c != ' ' && c != '&' && c != '(' && c != ')') name += c;
    qualified.remove_prefix(1);
  }
  return name;
}

}  // namespace distgrad::detail
