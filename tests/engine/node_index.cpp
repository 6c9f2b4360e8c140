#include <distgrad/engine/detail/node_index.hpp>

#include <vector>

#include <doctest/doctest.h>

namespace node_index_tests {

using distgrad::detail::NodeIndex;

TEST_CASE("addresses are numbered in the order of their first insertion") {
  NodeIndex index;
  std::vector<char> memory(100'000 * 16);
  CHECK(index.find(&memory[0]) == NodeIndex::none);
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    auto const [number, is_new] = index.insert(&memory[i * 16]);
    REQUIRE(is_new);
    REQUIRE(number == i);
  }
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    auto const [number, is_new] = index.insert(&memory[i * 16]);
    REQUIRE_FALSE(is_new);
    REQUIRE(number == i);
    REQUIRE(index.find(&memory[i * 16]) == i);
  }
  CHECK(index.find(&memory[8]) == NodeIndex::none);
}

}  // namespace node_index_tests
