#include <distgrad/wire/frame.hpp>

#include <cstring>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <distgrad/wire/message.hpp>

namespace frame_tests {

namespace {

using namespace distgrad;

FrameHeader example() {
  return {FrameKind::call, 0x01020304, 3, CallId{0x1122334455667788}, 1000, 5000};
}

error_code decode(FrameHeaderBytes const& bytes, FrameHeader& header, FrameLimits limits = {}) {
  return decode_frame_header(bytes, limits, header);
}

std::vector<std::byte> table(std::vector<std::uint64_t> const& lengths) {
  std::vector<std::byte> bytes(lengths.size() * 8);
  if (!bytes.empty()) std::memcpy(bytes.data(), lengths.data(), bytes.size());
  return bytes;
}

}  // namespace

TEST_CASE("a header survives the wire") {
  FrameHeader got;
  REQUIRE(!decode(encode_frame_header(example()), got));
  CHECK(got.kind == FrameKind::call);
  CHECK(got.flags == 0x01020304);
  CHECK(got.buffer_count == 3);
  CHECK(got.call == CallId{0x1122334455667788});
  CHECK(got.metadata_bytes == 1000);
  CHECK(got.payload_bytes == 5000);
}

TEST_CASE("the bytes of a header are what the format says") {
  auto const bytes = encode_frame_header(example());
  unsigned char const expected[frame_header_bytes] = {
      'D',  'R',  'G',  'D',                           // magic
      1,    0,    0x10, 0,                             // version, kind
      4,    3,    2,    1,                             // flags
      3,    0,    0,    0,                             // buffers
      0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  // call
      0xe8, 3,    0,    0,    0,    0,    0,    0,     // metadata
      0x88, 0x13, 0,    0,    0,    0,    0,    0};    // payload
  unsigned char got[frame_header_bytes];
  std::memcpy(got, bytes.data(), sizeof got);
  CHECK(std::vector(std::begin(got), std::end(got)) ==
        std::vector(std::begin(expected), std::end(expected)));
}

TEST_CASE("bytes that are no frame, or of another version, are told apart") {
  FrameHeader got;
  auto bytes = encode_frame_header(example());
  bytes[0] = std::byte{'G'};
  CHECK(decode(bytes, got) == errc::bad_magic);
  bytes = encode_frame_header(example());
  bytes[4] = std::byte{2};
  CHECK(decode(bytes, got) == errc::version_mismatch);
}

TEST_CASE("a size beyond its limit is refused, a size at it is not") {
  FrameHeader got;
  FrameLimits limits{1000, 5000, 3};
  auto const bytes = encode_frame_header(example());
  CHECK(!decode(bytes, got, limits));
  CHECK(decode(bytes, got, {999, 5000, 3}) == errc::frame_too_large);
  CHECK(decode(bytes, got, {1000, 4999, 3}) == errc::frame_too_large);
  CHECK(decode(bytes, got, {1000, 5000, 2}) == errc::frame_too_large);
}

TEST_CASE("a message's header counts its parts") {
  Message message;
  message.kind = FrameKind::reply;
  message.metadata.resize(10);
  std::vector<std::byte> storage(7);
  for (std::size_t size : {7, 0, 3}) message.buffers.emplace_back(nullptr, storage.data(), size);
  auto const header = message.header();
  CHECK(header.buffer_count == 3);
  CHECK(header.metadata_bytes == 10);
  CHECK(header.payload_bytes == 10);
}

TEST_CASE("a table of lengths must add up to the payload") {
  FrameHeader header;
  std::vector<std::uint64_t> lengths(2);
  header.buffer_count = 2;
  header.payload_bytes = 30;
  CHECK(!decode_buffer_lengths(table({10, 20}), header, lengths));
  CHECK(lengths == std::vector<std::uint64_t>{10, 20});
  CHECK(decode_buffer_lengths(table({10, 19}), header, lengths) == errc::bad_message);
  CHECK(decode_buffer_lengths(table({10, 21}), header, lengths) == errc::bad_message);
  CHECK(decode_buffer_lengths(table({10}), header, lengths) == errc::bad_message);
  // A sum that wraps around to the right number is not right.
  CHECK(decode_buffer_lengths(table({~0ull, 31}), header, lengths) == errc::bad_message);
  header = {};
  CHECK(!decode_buffer_lengths({}, header, {}));
}

TEST_CASE("random bytes never decode to sizes beyond the limits") {
  std::mt19937_64 random(7);
  FrameLimits const limits{4096, 1 << 20, 16};
  for (int round = 0; round < 20000; ++round) {
    FrameHeaderBytes bytes;
    for (auto& b : bytes) b = static_cast<std::byte>(random());
    // Half the rounds start right, so that the later fields are reached.
    if (round % 2) std::memcpy(bytes.data(), encode_frame_header({}).data(), 6);
    if (round % 4 == 3) std::memset(bytes.data() + 12, round % 23, 4);
    FrameHeader header;
    if (decode(bytes, header, limits)) continue;
    REQUIRE(header.metadata_bytes <= limits.max_metadata_bytes);
    REQUIRE(header.payload_bytes <= limits.max_payload_bytes);
    REQUIRE(header.buffer_count <= limits.max_buffers);
  }
}

}  // namespace frame_tests
