#include <distgrad/transport/detail/frame_assembler.hpp>

#include <algorithm>
#include <cstring>
#include <random>

#include <doctest/doctest.h>

#include <distgrad/transport/detail/outgoing_frame.hpp>

namespace frame_assembler_tests {

namespace {

using namespace distgrad;
using distgrad::detail::FrameAssembler;
using distgrad::detail::OutgoingFrame;

using Bytes = std::vector<std::byte>;

Buffer buffer_of(Bytes bytes) {
  auto shared = std::make_shared<Bytes>(std::move(bytes));
  return Buffer(shared, shared->data(), shared->size());
}

Bytes random_bytes(std::mt19937_64& random, std::size_t size) {
  Bytes bytes(size);
  for (auto& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

Message message_of(std::uint64_t number, Bytes metadata, std::vector<Bytes> buffers) {
  Message message;
  message.kind = FrameKind::call;
  message.call.value = number;
  message.metadata = std::move(metadata);
  for (auto& b : buffers) message.buffers.push_back(buffer_of(std::move(b)));
  return message;
}

/// What a frame looks like on the wire.
Bytes encoded(Message message) {
  Bytes out;
  OutgoingFrame frame(std::move(message), nullptr);
  while (!frame.is_finished()) {
    iovec pieces[4];
    auto const used = frame.gather(pieces);
    std::size_t size = 0;
    for (std::size_t i = 0; i < used; ++i) {
      auto const* from = static_cast<std::byte const*>(pieces[i].iov_base);
      out.insert(out.end(), from, from + pieces[i].iov_len);
      size += pieces[i].iov_len;
    }
    frame.advance(size);
  }
  return out;
}

struct Sink : distgrad::detail::AssemblerSink {
  std::vector<Buffer> landing(FrameHeader const&, std::span<std::byte const>,
                              std::span<std::uint64_t const> lengths) noexcept override {
    ++landings;
    if (refuse) return {};
    std::vector<Buffer> buffers;
    for (auto length : lengths) buffers.push_back(buffer_of(Bytes(length)));
    for (auto const& b : buffers) landed.push_back(b.data());
    return buffers;
  }
  bool on_frame(Message message) noexcept override {
    frames.push_back(std::move(message));
    return frames.size() != stop_after;
  }

  std::vector<Message> frames;
  std::vector<std::byte const*> landed;
  int landings = 0;
  bool refuse = false;
  std::size_t stop_after = ~std::size_t{0};
};

/// Feeds `stream` in reads of at most `most` bytes, as a scattering socket would.
error_code feed(FrameAssembler& assembler, Bytes const& stream, std::size_t most,
                std::size_t pieces_per_read = 8) {
  std::size_t at = 0;
  while (at < stream.size()) {
    std::vector<iovec> pieces(pieces_per_read);
    auto const used = assembler.prepare(pieces);
    REQUIRE(used >= 1);
    std::size_t taken = 0;
    for (std::size_t i = 0; i < used && taken < most; ++i) {
      auto const step = std::min({pieces[i].iov_len, most - taken, stream.size() - at});
      std::memcpy(pieces[i].iov_base, stream.data() + at, step);
      at += step;
      taken += step;
      if (step < pieces[i].iov_len) break;
    }
    REQUIRE(taken > 0);
    if (auto const bad = assembler.commit(taken)) return bad;
    if (assembler.is_stopped()) break;
  }
  return {};
}

bool is_same(Message const& a, Message const& b) {
  if (a.call != b.call || a.metadata != b.metadata || a.buffers.size() != b.buffers.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.buffers.size(); ++i) {
    auto const x = a.buffers[i].bytes(), y = b.buffers[i].bytes();
    if (!std::equal(x.begin(), x.end(), y.begin(), y.end())) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("frames come out whole whatever the sizes of the reads") {
  std::mt19937_64 random(1);
  std::vector<Message> sent;
  sent.push_back(message_of(0, {}, {}));
  sent.push_back(message_of(1, random_bytes(random, 5), {}));
  sent.push_back(message_of(2, random_bytes(random, 200), {random_bytes(random, 1), {}, {}}));
  sent.push_back(message_of(3, {}, {{}}));
  sent.push_back(message_of(4, random_bytes(random, 70000), {random_bytes(random, 100000)}));
  sent.push_back(message_of(5, random_bytes(random, 9), std::vector<Bytes>(30, Bytes(11))));
  sent.push_back(message_of(6, {}, {random_bytes(random, FrameAssembler::input_bytes)}));
  sent.push_back(message_of(7, random_bytes(random, 1), {}));
  Bytes stream;
  for (auto const& m : sent) {
    auto const bytes = encoded(m);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  for (std::size_t most : {1, 2, 7, 39, 40, 41, 1000, 65536, 1 << 20}) {
    for (std::size_t pieces : {2, 8, 64}) {
      CAPTURE(most);
      CAPTURE(pieces);
      Sink sink;
      FrameAssembler assembler({}, sink);
      REQUIRE(!feed(assembler, stream, most, pieces));
      REQUIRE(sink.frames.size() == sent.size());
      for (std::size_t i = 0; i < sent.size(); ++i) CHECK(is_same(sink.frames[i], sent[i]));
      CHECK(sink.landings == 5);
    }
  }
}

TEST_CASE("a payload lands where the sink said, and the socket is given that memory") {
  Sink sink;
  FrameAssembler assembler({}, sink);
  auto const stream = encoded(message_of(1, Bytes(3), {Bytes(1 << 20)}));
  auto const prefix = Bytes(stream.begin(), stream.begin() + 51);  // header, table and metadata
  REQUIRE(!feed(assembler, prefix, prefix.size()));
  REQUIRE(sink.landed.size() == 1);
  iovec pieces[2];
  REQUIRE(assembler.prepare(pieces) == 2);
  CHECK(pieces[0].iov_base == sink.landed[0]);
  CHECK(pieces[0].iov_len == 1 << 20);
}

TEST_CASE("a message without buffers asks for no landing") {
  Sink sink;
  FrameAssembler assembler({}, sink);
  REQUIRE(!feed(assembler, encoded(message_of(1, Bytes(3), {})), 100));
  CHECK(sink.landings == 0);
  CHECK(sink.frames.size() == 1);
}

TEST_CASE("a refused payload is skipped, however large") {
  for (std::size_t most : {1000, 1 << 20}) {
    Sink sink;
    sink.refuse = true;
    FrameAssembler assembler({}, sink);
    REQUIRE(!feed(assembler, encoded(message_of(1, {}, {Bytes(300000), Bytes(5)})), most));
    CHECK(sink.frames.empty());
    REQUIRE(!feed(assembler, encoded(message_of(2, Bytes(8), {})), most));
    REQUIRE(sink.frames.size() == 1);
    CHECK(sink.frames[0].call == CallId{2});
  }
}

TEST_CASE("a sink that stops gets no further frame of the same read") {
  Sink sink;
  sink.stop_after = 1;
  FrameAssembler assembler({}, sink);
  auto stream = encoded(message_of(1, {}, {}));
  auto const second = encoded(message_of(2, {}, {}));
  stream.insert(stream.end(), second.begin(), second.end());
  REQUIRE(!feed(assembler, stream, stream.size()));
  CHECK(assembler.is_stopped());
  CHECK(sink.frames.size() == 1);
}

TEST_CASE("a stream that breaks the protocol ends with the reason") {
  auto const good = encoded(message_of(1, Bytes(10), {Bytes(4), Bytes(4)}));
  struct Case {
    std::size_t offset;
    std::byte value;
    errc expected;
  };
  for (auto const& c :
       {Case{0, std::byte{0}, errc::bad_magic}, Case{4, std::byte{9}, errc::version_mismatch},
        Case{12 + 3, std::byte{1}, errc::frame_too_large},  // buffer count
        Case{24 + 7, std::byte{1}, errc::frame_too_large},  // metadata bytes
        Case{32, std::byte{9}, errc::bad_message},          // payload bytes
        Case{40, std::byte{5}, errc::bad_message}}) {       // first length
    CAPTURE(c.offset);
    auto bytes = good;
    bytes[c.offset] = c.value;
    for (std::size_t most : {1, 4096}) {
      Sink sink;
      FrameAssembler assembler({}, sink);
      CHECK(feed(assembler, bytes, most) == c.expected);
      CHECK(assembler.is_stopped());
      CHECK(sink.frames.empty());
    }
  }
}

TEST_CASE("random changes to a stream neither crash nor break the limits") {
  std::mt19937_64 random(3);
  FrameLimits const limits{1000, 4000, 8};
  Bytes good;
  for (std::uint64_t i = 0; i < 6; ++i) {
    std::vector<Bytes> buffers(random() % 4, random_bytes(random, random() % 300));
    auto const bytes = encoded(message_of(i, random_bytes(random, random() % 200), buffers));
    good.insert(good.end(), bytes.begin(), bytes.end());
  }
  for (int round = 0; round < 3000; ++round) {
    auto bytes = good;
    for (auto n = random() % 6; n > 0; --n) {
      auto const value = random() % 2 ? random() % 9 : random();
      bytes[random() % bytes.size()] = static_cast<std::byte>(value);
    }
    bytes.resize(random() % bytes.size() + 1);
    Sink sink;
    FrameAssembler assembler(limits, sink);
    feed(assembler, bytes, random() % 500 + 1, random() % 5 + 2);
    for (auto const& frame : sink.frames) {
      REQUIRE(frame.metadata.size() <= limits.max_metadata_bytes);
      REQUIRE(frame.buffers.size() <= limits.max_buffers);
      REQUIRE(frame.header().payload_bytes <= limits.max_payload_bytes);
    }
  }
}

}  // namespace frame_assembler_tests
