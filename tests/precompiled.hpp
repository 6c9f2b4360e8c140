// What test programs compile once. doctest.h comes after libtorch: Debian's includes glog, whose
// CHECK would replace doctest's and end the program.
#pragma once

#include <cstddef>
#include <vector>

#include <distgrad/distgrad.hpp>

#include <doctest/doctest.h>

/// libtorch's logging gives every std::vector an operator<<, which does not compile where the
/// elements have none. doctest shall not use it.
template <class T, class Allocator>
struct doctest::StringMaker<std::vector<T, Allocator>> {
  static String convert(std::vector<T, Allocator> const& elements) {
    String text = "{";
    for (std::size_t i = 0; i < elements.size(); ++i) {
      T const& element = elements[i];
      text += (i ? ", " : "") + toString(element);
    }
    return text + "}";
  }
};
