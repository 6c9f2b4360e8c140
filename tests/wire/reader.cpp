#include <distgrad/wire/reader.hpp>

#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <distgrad/wire/writer.hpp>

namespace reader_tests {

using namespace distgrad;

TEST_CASE("what a writer wrote is read back") {
  Writer out;
  out.number<std::uint8_t>(200);
  out.number<std::int16_t>(-3);
  out.number<std::uint64_t>(~0ull);
  out.number(-2.5);
  out.number(1.5f);
  out.number(true);
  out.text("héllo");
  out.text("");
  out.id(WorkerId{9});
  out.id(ContextId{{1}, {2}, 3});
  out.id(PassId{{{4}, {5}, 6}, {7}, 8});

  Reader in(out.bytes());
  CHECK(in.number<std::uint8_t>() == 200);
  CHECK(in.number<std::int16_t>() == -3);
  CHECK(in.number<std::uint64_t>() == ~0ull);
  CHECK(in.number<double>() == -2.5);
  CHECK(in.number<float>() == 1.5f);
  CHECK(in.number<bool>());
  CHECK(in.text() == "héllo");
  CHECK(in.text_view().empty());
  CHECK(in.id<WorkerId>() == WorkerId{9});
  CHECK(in.id<ContextId>() == ContextId{{1}, {2}, 3});
  CHECK(in.id<PassId>() == PassId{{{4}, {5}, 6}, {7}, 8});
  CHECK(in.ok());
  CHECK(in.at_end());
}

TEST_CASE("a value that is cut off reads as nothing and fails for good") {
  Writer out;
  out.number<std::uint32_t>(0xffffffff);
  Reader in(std::span(out.bytes()).first(3));
  CHECK(in.number<std::uint32_t>() == 0);
  CHECK(!in.ok());
  CHECK(in.number<std::uint8_t>() == 0);
  CHECK(in.text() == "");
  CHECK(in.raw(1).empty());
  CHECK(in.id<ContextId>() == ContextId{});
  CHECK(!in.ok());
}

TEST_CASE("a text longer than the rest is not read") {
  Writer out;
  out.number<std::uint32_t>(1000000);
  out.raw(std::as_bytes(std::span("abc", 3)));
  Reader in(out.bytes());
  CHECK(in.text_view().empty());
  CHECK(!in.ok());
}

TEST_CASE("a boolean of any non-zero byte is true") {
  std::byte const two[] = {std::byte{2}};
  Reader in(two);
  CHECK(in.number<bool>());
}

TEST_CASE("a count that the rest cannot hold fails instead of sizing a container") {
  Writer out;
  out.number<std::uint64_t>(3);
  out.number<std::uint64_t>(0);
  out.number<std::uint64_t>(0);
  CHECK(Reader(out.bytes()).count(5) == 3);
  Reader too_many(out.bytes());
  CHECK(too_many.count(8) == 0);
  CHECK(!too_many.ok());
  Writer absurd;
  absurd.number<std::uint64_t>(~0ull);
  Reader in(absurd.bytes());
  CHECK(in.count(0) == 0);
  CHECK(!in.ok());
}

TEST_CASE("a decoder may declare its input malformed") {
  std::byte const bytes[4]{};
  Reader in(bytes);
  in.fail();
  CHECK(!in.ok());
  CHECK(in.at_end());
  CHECK(in.remaining_bytes() == 0);
}

TEST_CASE("any bytes and any sequence of reads stay inside the bytes") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 20000; ++round) {
    // An exact allocation: an address sanitizer sees one byte too many.
    std::vector<std::byte> bytes(random() % 40);
    for (auto& b : bytes) b = static_cast<std::byte>(random() % 3 ? random() % 8 : random());
    Reader in(bytes);
    for (int i = 0; i < 12; ++i) {
      auto const before = in.remaining_bytes();
      switch (random() % 7) {
        case 0: in.number<std::uint64_t>(); break;
        case 1: in.number<std::uint8_t>(); break;
        case 2: REQUIRE(in.text().size() <= before); break;
        case 3: REQUIRE(in.count(random() % 4) <= before); break;
        case 4: in.id<PassId>(); break;
        case 5: in.raw(random() % 50); break;
        default: in.number<bool>();
      }
      REQUIRE(in.remaining_bytes() <= before);
    }
  }
}

}  // namespace reader_tests
