#include <distgrad/transport/detail/outgoing_frame.hpp>

#include <doctest/doctest.h>

namespace outgoing_frame_tests {

namespace {

using namespace distgrad;
using distgrad::detail::OutgoingFrame;

Message example(std::vector<std::byte>& storage) {
  Message message;
  message.kind = FrameKind::call;
  message.metadata.resize(10);
  message.buffers.emplace_back(nullptr, storage.data(), 100);
  message.buffers.emplace_back(nullptr, storage.data() + 100, 0);
  message.buffers.emplace_back(nullptr, storage.data() + 100, 50);
  return message;
}

}  // namespace

TEST_CASE("a frame lists header, lengths, metadata and the tensors' own memory") {
  std::vector<std::byte> storage(150);
  OutgoingFrame frame(example(storage), nullptr);
  iovec pieces[8];
  REQUIRE(frame.gather(pieces) == 5);
  CHECK(pieces[0].iov_len == frame_header_bytes);
  CHECK(pieces[1].iov_len == 24);
  CHECK(pieces[2].iov_len == 10);
  CHECK(pieces[3].iov_base == storage.data());
  CHECK(pieces[3].iov_len == 100);
  CHECK(pieces[4].iov_base == storage.data() + 100);
  CHECK(pieces[4].iov_len == 50);
}

TEST_CASE("a frame goes on where the last write ended, wherever that was") {
  std::vector<std::byte> storage(150);
  std::size_t const total = 40 + 24 + 10 + 150;
  for (std::size_t first = 0; first <= total; ++first) {
    OutgoingFrame frame(example(storage), nullptr);
    CHECK(frame.advance(first) == 0);
    CHECK(frame.is_finished() == (first == total));
    auto moved = std::move(frame);
    iovec pieces[8];
    std::size_t rest = 0;
    auto const used = moved.gather(pieces);
    for (std::size_t i = 0; i < used; ++i) rest += pieces[i].iov_len;
    CHECK(rest == total - first);
    CHECK(moved.advance(rest) == 0);
    CHECK(moved.is_finished());
  }
}

TEST_CASE("bytes beyond a frame are left for the next one") {
  std::vector<std::byte> storage(150);
  OutgoingFrame frame(example(storage), nullptr);
  CHECK(frame.advance(1000) == 1000 - (40 + 24 + 10 + 150));
  CHECK(frame.is_finished());
}

TEST_CASE("a list shorter than the frame takes its beginning") {
  std::vector<std::byte> storage(150);
  OutgoingFrame frame(example(storage), nullptr);
  iovec pieces[2];
  CHECK(frame.gather(pieces) == 2);
  frame.advance(64);
  CHECK(frame.gather(pieces) == 2);
  CHECK(pieces[0].iov_len == 10);
  CHECK(pieces[1].iov_base == storage.data());
}

TEST_CASE("a frame calls its completion at most once") {
  int calls = 0;
  OutgoingFrame frame(Message{}, [&](error_code) { ++calls; });
  frame.complete({});
  frame.complete(errc::closed);
  CHECK(calls == 1);
}

}  // namespace outgoing_frame_tests
