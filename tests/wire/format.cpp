// The bytes that docs/wire-format.md shows are those the code writes.
#include <distgrad/wire/message.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <distgrad/raw/raw_codec.hpp>
#include <distgrad/raw/raw_message.hpp>
#include <distgrad/rendezvous/detail/rendezvous_messages.hpp>
#include <distgrad/transport/detail/handshake.hpp>
#include <distgrad/wire/error_frame.hpp>

#include <doctest/doctest.h>

namespace format_tests {

namespace {
namespace wire_format {

using namespace distgrad;
using Bytes = std::vector<std::byte>;

/// The blocks of the document by their names: ```hex NAME
std::map<std::string, Bytes> documented() {
  auto const root = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  std::ifstream document(root / "docs" / "wire-format.md");
  std::map<std::string, Bytes> blocks;
  Bytes* block = nullptr;
  for (std::string line; std::getline(document, line);) {
    if (line.starts_with("```")) {
      block = line.starts_with("```hex ") ? &blocks[line.substr(7)] : nullptr;
    } else if (block) {
      std::istringstream bytes(line.substr(0, line.find(';')));
      for (unsigned value = 0; bytes >> std::hex >> value;) block->push_back(std::byte(value));
    }
  }
  return blocks;
}

/// A message as a transport writes it.
Bytes frame_of(Message const& message) {
  auto const header = encode_frame_header(message.header());
  Writer out;
  out.raw(header);
  for (auto const& buffer : message.buffers) out.number<std::uint64_t>(buffer.size_bytes());
  out.raw(message.metadata);
  for (auto const& buffer : message.buffers) out.raw(buffer.bytes());
  return out.take();
}

template <class... T>
RawValues values_of(T const&... values) {
  RawValues raw;
  RawEncoder out{raw.writer, raw.tensors};
  (RawCodec<T>::encode(out, values), ...);
  return raw;
}
RawTensor row(float a, float b) { return RawTensor::of<float>({a, b}, {1, 2}); }

Message call() {
  auto message = make_raw_call("scale", RawFunction<RawTensor(RawTensor, double)>::signature,
                               values_of(row(1, 2), 0.5));
  message.call = {7};
  return message;
}
Message error_reply() {
  Writer out;
  write_error(out, {errc::unknown_function, "trainer", "scale", {7}, "no such"});
  return {.kind = FrameKind::error_reply, .call = {7}, .metadata = out.take()};
}
Message shutdown_state() {
  Writer out;
  out.number<std::uint64_t>(1);
  out.number<std::uint64_t>(200);
  return {.kind = FrameKind::shutdown_state, .metadata = out.take()};
}

TEST_CASE("the documented bytes are those that are written") {
  PeerAddress const trainer{{"trainer", {0}, {8}}, "10.0.0.1:5000"};
  PeerAddress const sensor{{"sensor", {1}, {9}}, "10.0.0.2:4000"};
  std::map<std::string, Bytes> const written{
      {"call", frame_of(call())},
      {"reply", frame_of(make_raw_reply({7}, values_of(row(0.5, 1))))},
      {"error_reply", frame_of(error_reply())},
      {"hello", detail::encode_hello({{1}, {9}, {0}, "key"})},
      {"welcome", detail::encode_welcome({{0}, {8}, {}})},
      {"goodbye", frame_of({.kind = FrameKind::goodbye})},
      {"registration", detail::encode_registration({sensor, 2}, "key")},
      {"group", detail::encode_group({trainer, sensor})},
      {"shutdown_state", frame_of(shutdown_state())}};
  auto const shown = documented();
  CHECK(shown.size() == written.size());
  for (auto const& [name, bytes] : written) {
    CAPTURE(name);
    REQUIRE(shown.contains(name));
    CHECK(shown.at(name) == bytes);
  }
}

}  // namespace wire_format
}  // namespace

}  // namespace format_tests
