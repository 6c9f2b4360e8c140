#include <distgrad/wire/writer.hpp>

#include <doctest/doctest.h>

#include <distgrad/wire/reader.hpp>

namespace writer_tests {

using namespace distgrad;

TEST_CASE("numbers are little-endian, texts have their length in front") {
  Writer out;
  out.number<std::uint32_t>(0x01020304);
  out.text("ab");
  std::vector<std::byte> expected;
  for (char b : std::string_view("\4\3\2\1\2\0\0\0ab", 10)) {
    expected.push_back(static_cast<std::byte>(b));
  }
  CHECK(out.bytes() == expected);
  CHECK(out.size_bytes() == expected.size());
}

TEST_CASE("a number written before may be replaced") {
  Writer out;
  out.number<std::uint16_t>(1);
  auto const at = out.size_bytes();
  out.number<std::uint32_t>(0);
  out.number<std::uint16_t>(2);
  out.patch<std::uint32_t>(at, 77);
  Reader in(out.bytes());
  CHECK(in.number<std::uint16_t>() == 1);
  CHECK(in.number<std::uint32_t>() == 77);
  CHECK(in.number<std::uint16_t>() == 2);
}

TEST_CASE("a writer reuses memory that it is given, and not what was in it") {
  std::vector<std::byte> old(100, std::byte{1});
  auto const* memory = old.data();
  Writer out(std::move(old));
  out.number<std::uint8_t>(5);
  auto const bytes = out.take();
  CHECK(bytes.data() == memory);
  CHECK(bytes.size() == 1);
}

}  // namespace writer_tests
