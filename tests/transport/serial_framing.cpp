#include <distgrad/transport/detail/serial_framing.hpp>

#include <string_view>

#include <doctest/doctest.h>

#include "noise.hpp"

namespace serial_framing_tests {

namespace {
namespace framing {

using Bytes = std::vector<std::byte>;
using distgrad::detail::LineDecoder;

Bytes bytes_of(std::string_view text) {
  auto const* at = reinterpret_cast<std::byte const*>(text.data());
  return {at, at + text.size()};
}

Bytes line_of(Bytes packet) {
  Bytes line;
  distgrad::detail::write_line(packet, line);
  return line;
}

std::vector<Bytes> feed(LineDecoder& decoder, std::span<std::byte const> line) {
  std::vector<Bytes> packets;
  decoder.feed(line, [&](auto packet) { packets.emplace_back(packet.begin(), packet.end()); });
  return packets;
}

/// Packets of all lengths up to `longest`, some of zeros only, some without any.
std::vector<Bytes> samples(std::size_t longest) {
  std::mt19937 random(7);
  std::vector<Bytes> all;
  for (std::size_t size = 1; size <= longest; ++size) {
    Bytes packet(size);
    for (auto& byte : packet) {
      auto const value = random();
      byte = std::byte(size % 3 == 0 ? 0 : size % 3 == 1 ? 1 + value % 255 : value % 4);
    }
    all.push_back(std::move(packet));
  }
  return all;
}

}  // namespace framing
}  // namespace

using namespace framing;

TEST_CASE("the checksum is CRC-32C") {
  CHECK(distgrad::detail::crc32c(bytes_of("123456789")) ==
        0xE3069283);                                         // the catalogue's check value
  CHECK(distgrad::detail::crc32c(Bytes(32)) == 0x8A9136AA);  // RFC 3720, B.4
}

TEST_CASE("a coded packet has no zero between its delimiters") {
  for (auto const& packet : samples(600)) {
    auto const line = line_of(packet);
    REQUIRE(line.size() <= packet.size() + 4 + (packet.size() + 4) / 254 + 3);
    CHECK(std::count(line.begin(), line.end(), std::byte{0}) == 2);
    CHECK(line.front() == std::byte{0});
    CHECK(line.back() == std::byte{0});
  }
}

TEST_CASE("every packet comes out as it went in, wherever the line is cut") {
  auto const packets = samples(600);
  Bytes line;
  for (auto const& packet : packets) {
    auto const one = line_of(packet);
    line.insert(line.end(), one.begin(), one.end());
  }
  for (std::size_t step : {std::size_t{1}, std::size_t{7}, std::size_t{1000}, line.size()}) {
    LineDecoder decoder(600);
    std::vector<Bytes> got;
    for (std::size_t at = 0; at < line.size(); at += step) {
      for (auto& packet :
           feed(decoder, std::span(line).subspan(at, std::min(step, line.size() - at)))) {
        got.push_back(std::move(packet));
      }
    }
    CHECK(got == packets);
    CHECK(decoder.damaged() == 0);
  }
}

TEST_CASE("after garbage the next packet is found") {
  auto const packet = bytes_of("payload");
  auto const line = line_of(packet);
  LineDecoder decoder(100);
  SUBCASE("without a delimiter in it") {
    CHECK(feed(decoder, bytes_of("garbage")).empty());
    CHECK(feed(decoder, line) == std::vector<Bytes>{packet});
    CHECK(decoder.damaged() == 1);
  }
  SUBCASE("longer than any packet") {
    CHECK(feed(decoder, Bytes(100000, std::byte{5})).empty());
    CHECK(feed(decoder, line) == std::vector<Bytes>{packet});
    CHECK(decoder.damaged() == 1);
  }
  SUBCASE("that begins in the middle of a packet") {
    CHECK(feed(decoder, std::span(line).subspan(4)).empty());
    CHECK(feed(decoder, line) == std::vector<Bytes>{packet});
  }
  SUBCASE("a lost delimiter costs no packet") {
    auto const cut = std::span(line).first(line.size() - 1);
    CHECK(feed(decoder, cut).empty());
    CHECK(feed(decoder, line) == std::vector<Bytes>{packet, packet});
    CHECK(decoder.damaged() == 0);
  }
}

TEST_CASE("a packet longer than agreed is taken for garbage, one of that length is not") {
  LineDecoder decoder(300);
  CHECK(feed(decoder, line_of(Bytes(300, std::byte{1}))).size() == 1);
  CHECK(feed(decoder, line_of(Bytes(310, std::byte{1}))).empty());
  CHECK(decoder.damaged() == 1);
}

TEST_CASE("no flipped bit and no lost byte passes the checksum") {
  auto const packet = bytes_of("one of many bytes, and a zero: \0!");
  auto const line = line_of(packet);
  for (std::size_t at = 1; at + 1 < line.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto flipped = line;
      flipped[at] ^= std::byte(1 << bit);
      LineDecoder decoder(100);
      CHECK(feed(decoder, flipped).empty());
    }
    auto shortened = line;
    shortened.erase(shortened.begin() + static_cast<std::ptrdiff_t>(at));
    LineDecoder decoder(100);
    CHECK(feed(decoder, shortened).empty());
  }
}

}  // namespace serial_framing_tests
