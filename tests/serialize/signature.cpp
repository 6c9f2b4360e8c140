#include <distgrad/wire/signature.hpp>
//
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include <distgrad/serialize/codec.hpp>

#include <doctest/doctest.h>

namespace signature_tests {

namespace {

using namespace distgrad;

struct IntFloat {
  int a;
  float b;
};
struct FloatInt {
  float a;
  int b;
};
enum class Small : std::uint8_t {};

TEST_CASE("the hash is FNV-1a, whose published values it gives") {
  static_assert(fnv1a("") == 0xcbf29ce484222325ull);
  static_assert(fnv1a("a") == 0xaf63dc4c8601ec8cull);
  static_assert(fnv1a("foobar") == 0x85944171f73967e8ull);
}

TEST_CASE("types that differ on the wire have different signatures") {
  std::vector<std::uint64_t> all = {
      Codec<bool>::signature,
      Codec<char>::signature,
      Codec<std::int8_t>::signature,
      Codec<std::uint8_t>::signature,
      Codec<int>::signature,
      Codec<unsigned>::signature,
      Codec<std::int64_t>::signature,
      Codec<float>::signature,
      Codec<double>::signature,
      Codec<Small>::signature,
      Codec<std::string>::signature,
      Codec<Void>::signature,
      Codec<at::Tensor>::signature,
      Codec<std::vector<int>>::signature,
      Codec<std::vector<float>>::signature,
      Codec<std::vector<std::vector<int>>>::signature,
      Codec<std::optional<int>>::signature,
      Codec<std::array<int, 2>>::signature,
      Codec<std::array<int, 3>>::signature,
      Codec<std::map<int, float>>::signature,
      Codec<std::map<float, int>>::signature,
      Codec<std::tuple<int, float>>::signature,
      Codec<std::tuple<float, int>>::signature,
      Codec<std::variant<int, float>>::signature,
      Codec<std::chrono::milliseconds>::signature,
      Codec<std::chrono::seconds>::signature,
      Codec<IntFloat>::signature,
      Codec<FloatInt>::signature,
      signature_of<>,
      signature_of<int>,
      signature_of<int, int>,
      signature_of<int, float>,
      signature_of<float, int>,
  };
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
}

TEST_CASE("types that are the same on the wire have the same signature") {
  static_assert(Codec<long>::signature == Codec<long long>::signature);
  static_assert(Codec<std::string_view>::signature == Codec<std::string>::signature);
  static_assert(Codec<std::map<int, float>>::signature ==
                Codec<std::unordered_map<int, float>>::signature);
  static_assert(Codec<std::pair<int, float>>::signature ==
                Codec<std::tuple<int, float>>::signature);
}

// These numbers are on the wire: a change makes programs of two versions refuse one another.
TEST_CASE("signatures are the same for every compiler") {
  CHECK(Codec<int>::signature == fnv1a("i32"));
  auto const list = signature_of<at::Tensor, std::vector<int>, std::string>;
  CHECK(list == 8561421549515677510ull);
}

}  // namespace

}  // namespace signature_tests
