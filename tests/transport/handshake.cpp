#include <distgrad/transport/detail/handshake.hpp>

#include <random>

#include <doctest/doctest.h>

namespace handshake_tests {

namespace {

using namespace distgrad;
using namespace distgrad::detail;

struct Parsed {
  FrameHeader header;
  std::span<std::byte const> metadata;
};

Parsed parse(std::vector<std::byte> const& frame) {
  Parsed parsed;
  std::span<std::byte const, frame_header_bytes> const head(frame.data(), frame_header_bytes);
  REQUIRE(!decode_frame_header(head, handshake_limits, parsed.header));
  parsed.metadata = std::span(frame).subspan(frame_header_bytes);
  REQUIRE(parsed.metadata.size() == parsed.header.metadata_bytes);
  return parsed;
}

TransportSetup setup_of(std::uint32_t self) {
  TransportSetup setup;
  setup.self = {self};
  setup.job_secret = "secret";
  for (std::uint32_t i = 0; i < 3; ++i) {
    setup.group.push_back({{"w" + std::to_string(i), {i}, {i + 50}}, "e"});
  }
  return setup;
}

}  // namespace

TEST_CASE("hello and welcome survive the wire, and the longest secret fits") {
  auto const secret = std::string(max_job_secret_bytes, 's');
  auto const frame = encode_hello({{2}, {52}, {1}, secret});
  auto const parsed = parse(frame);
  auto const hello = decode_hello(parsed.header, parsed.metadata);
  REQUIRE(hello);
  CHECK(hello->from == WorkerId{2});
  CHECK(hello->incarnation == Incarnation{52});
  CHECK(hello->to == WorkerId{1});
  CHECK(hello->secret == secret);

  for (auto const& status : {error_code(), make_error_code(errc::bad_secret)}) {
    auto const answer = encode_welcome({{1}, {51}, status});
    auto const got = parse(answer);
    auto const welcome = decode_welcome(got.header, got.metadata);
    REQUIRE(welcome);
    CHECK(welcome->from == WorkerId{1});
    CHECK(welcome->status == status);
    CHECK(!decode_hello(got.header, got.metadata));
  }
}

TEST_CASE("a hello is taken from a higher rank of the group that knows the secret") {
  auto const setup = setup_of(1);
  CHECK(!judge_hello({{2}, {52}, {1}, "secret"}, setup));
  CHECK(judge_hello({{2}, {52}, {1}, "Secret"}, setup) == errc::bad_secret);
  CHECK(judge_hello({{2}, {52}, {0}, "secret"}, setup) == errc::unknown_worker);
  CHECK(judge_hello({{0}, {50}, {1}, "secret"}, setup) == errc::unknown_worker);
  CHECK(judge_hello({{1}, {51}, {1}, "secret"}, setup) == errc::unknown_worker);
  CHECK(judge_hello({{3}, {53}, {1}, "secret"}, setup) == errc::unknown_worker);
  CHECK(judge_hello({{~0u}, {53}, {1}, "secret"}, setup) == errc::unknown_worker);
  CHECK(judge_hello({{2}, {53}, {1}, "secret"}, setup) == errc::refused);
}

TEST_CASE("an incarnation that is not known is taken as it comes") {
  auto setup = setup_of(1);
  setup.group[2].info.incarnation = {};
  CHECK(!judge_hello({{2}, {777}, {1}, "secret"}, setup));
  CHECK(!judge_welcome({{2}, {777}, {}}, setup.group[2].info));
}

TEST_CASE("a welcome must come from the worker that was meant") {
  auto const expected = setup_of(1).group[0].info;
  CHECK(!judge_welcome({{0}, {50}, {}}, expected));
  CHECK(judge_welcome({{0}, {50}, errc::bad_secret}, expected) == errc::bad_secret);
  CHECK(judge_welcome({{2}, {50}, {}}, expected) == errc::unknown_worker);
  CHECK(judge_welcome({{0}, {51}, {}}, expected) == errc::unknown_worker);
}

TEST_CASE("random bytes are no hello and no welcome, or one within its bounds") {
  std::mt19937_64 random(2);
  FrameHeader header;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes(random() % 40);
    for (auto& b : bytes) b = static_cast<std::byte>(random() % 8);
    header.kind = round % 2 ? FrameKind::hello : FrameKind::welcome;
    auto const hello = decode_hello(header, bytes);
    if (hello) REQUIRE(hello->secret.size() <= bytes.size());
    decode_welcome(header, bytes);
  }
}

}  // namespace handshake_tests
