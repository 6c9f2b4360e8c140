#include <distgrad/wire/secret.hpp>

#include <string>

#include <doctest/doctest.h>

namespace secret_tests {

using namespace distgrad;

TEST_CASE("secrets are the same when every byte is") {
  CHECK(is_same_secret("", ""));
  CHECK(is_same_secret("abc", "abc"));
  CHECK(is_same_secret(std::string("a\0b", 3), std::string("a\0b", 3)));
  for (auto const* other : {"", "ab", "abcd", "abd", "xbc", "abcabc"}) {
    CAPTURE(other);
    CHECK(!is_same_secret("abc", other));
    CHECK(!is_same_secret(other, "abc"));
  }
  CHECK(!is_same_secret("", std::string(1, '\0')));
  CHECK(!is_same_secret(std::string(1, '\0'), ""));
}

}  // namespace secret_tests
