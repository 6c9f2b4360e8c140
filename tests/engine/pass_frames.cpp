#include <distgrad/engine/pass_frames.hpp>

#include "../autograd/recording_host.hpp"

#include <distgrad/core/error.hpp>
#include <doctest/doctest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include <random>

using namespace distgrad;

namespace {

PassId const pass{{WorkerId{1}, Incarnation{2}, 3}, WorkerId{4}, 5};
AutogradMessageId const message{WorkerId{6}, Incarnation{7}, 8};

struct Fixture {
  recording_host::RecordingHost host;

  distgrad::detail::GradientFrame read(std::span<std::byte const> metadata,
                             std::span<Buffer const> buffers) {
    Reader in(metadata);
    CHECK(in.id<PassId>() == pass);
    return distgrad::detail::read_gradient(host, in, buffers);
  }
  distgrad::detail::GradientFrame round_trip(variable_list const& gradients, bool retain = false,
                                   bool create = false) {
    auto const frame =
        distgrad::detail::gradient_message(host, pass, message, retain, create, gradients);
    CHECK((frame.kind == FrameKind::gradient));
    return read(frame.metadata, frame.buffers);
  }
};

/// Whether `f` throws an `Error`; anything else ends the test.
template <class F>
bool is_refused(F&& f) {
  try {
    f();
  } catch (Error const&) {
    return true;
  }
  return false;
}

PassStatus some_status() {
  return {7, true, 11, 12, {WorkerId{1}, WorkerId{9}},
          {{message, WorkerId{2}}, {{WorkerId{3}, Incarnation{1}, 4}, WorkerId{5}}}};
}

constexpr std::size_t pass_id_bytes = 24;

}  // namespace

TEST_CASE_FIXTURE(Fixture, "gradients arrive as they were sent, undefined ones as undefined") {
  for (std::size_t count : {0, 1, 7, 8, 9, 30}) {
    for (unsigned pattern : {0u, ~0u, 0x5a5a5a5au}) {
      variable_list gradients(count);
      for (std::size_t i = 0; i < count; ++i) {
        if (pattern >> i & 1) gradients[i] = at::arange(3, at::kFloat).add(double(i));
      }
      auto const arrived = round_trip(gradients);
      CHECK(arrived.message == message);
      REQUIRE(arrived.gradients.size() == count);
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(arrived.gradients[i].defined() == gradients[i].defined());
        if (gradients[i].defined()) CHECK(arrived.gradients[i].equal(gradients[i]));
      }
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "an undefined gradient takes one bit") {
  auto const size = [&](std::size_t count) {
    auto const frame =
        distgrad::detail::gradient_message(host, pass, message, false, false, variable_list(count));
    CHECK(frame.buffers.empty());
    return frame.metadata.size();
  };
  CHECK(size(800) == size(8) + 99);
}

TEST_CASE_FIXTURE(Fixture, "both flags arrive") {
  for (bool retain : {false, true}) {
    for (bool create : {false, true}) {
      auto const arrived = round_trip({at::ones({2})}, retain, create);
      CHECK(arrived.retain_graph == retain);
      CHECK(arrived.create_graph == create);
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "sparse gradients and those of other types arrive") {
  auto const sparse = at::ones({3, 3}).to_sparse(), half = at::ones({2}).to(at::kHalf);
  auto const arrived = round_trip({sparse, half}).gradients;
  CHECK(arrived[0].is_sparse());
  CHECK(arrived[0].to_dense().equal(sparse.to_dense()));
  CHECK((arrived[1].scalar_type() == at::kHalf));
}

TEST_CASE_FIXTURE(Fixture, "a gradient message that is cut off is refused") {
  auto const frame = distgrad::detail::gradient_message(host, pass, message, true, false,
                                              {at::ones({2}), at::Tensor(), at::ones({3})});
  for (std::size_t size = pass_id_bytes; size < frame.metadata.size(); ++size) {
    CAPTURE(size);
    auto const part = std::span<std::byte const>(frame.metadata).first(size);
    CHECK(is_refused([&] { read(part, frame.buffers); }));
  }
  CHECK(is_refused([&] { read(frame.metadata, {}); }));
  CHECK(is_refused([&] { read(frame.metadata, std::span(frame.buffers).first(1)); }));
}

TEST_CASE_FIXTURE(Fixture, "a count that nothing stands behind is refused before memory is taken") {
  Writer out;
  out.id(pass);
  out.id(message);
  out.number(std::uint8_t{0});
  out.number(std::uint32_t{0xffffffff});
  out.raw(std::vector<std::byte>(100));
  CHECK(is_refused([&] { read(out.bytes(), {}); }));
}

TEST_CASE_FIXTURE(Fixture, "bits that do not match the tensors are refused") {
  auto frame = distgrad::detail::gradient_message(host, pass, message, false, false,
                                        {at::ones({2}), at::Tensor(), at::ones({3})});
  auto& bits = frame.metadata[pass_id_bytes + 16 + 1 + 4];
  REQUIRE(bits == std::byte{0b101});
  for (auto wrong : {0b000, 0b001, 0b111}) {
    CAPTURE(wrong);
    bits = std::byte(wrong);
    CHECK(is_refused([&] { read(frame.metadata, frame.buffers); }));
  }
}

TEST_CASE_FIXTURE(Fixture, "damaged gradient messages give an error or gradients, nothing else") {
  std::mt19937 random(3);
  auto const frame = distgrad::detail::gradient_message(host, pass, message, false, false,
                                              {at::ones({2, 2}), at::Tensor(), at::ones({3})});
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    auto damaged = frame.metadata;
    for (auto n = 1 + random() % 3; n > 0; --n) {
      auto const at = pass_id_bytes + random() % (damaged.size() - pass_id_bytes);
      damaged[at] = std::byte(random());
    }
    refused += is_refused([&] { read(damaged, frame.buffers); });
  }
  CHECK(refused > 1000);
}

TEST_CASE("a status arrives as it was sent") {
  for (auto const& sent : {PassStatus{}, some_status()}) {
    Writer out;
    distgrad::detail::write_status(out, sent);
    Reader in(out.bytes());
    auto const got = distgrad::detail::read_status(in);
    CHECK(got.round == sent.round);
    CHECK(got.is_idle == sent.is_idle);
    CHECK(got.sent == sent.sent);
    CHECK(got.received == sent.received);
    CHECK(got.peers == sent.peers);
    CHECK((got.awaited == sent.awaited));
  }
}

TEST_CASE("a status that is cut off or goes on is refused") {
  Writer out;
  distgrad::detail::write_status(out, some_status());
  for (std::size_t size = 0; size < out.size_bytes(); ++size) {
    CAPTURE(size);
    Reader in(std::span(out.bytes()).first(size));
    CHECK(is_refused([&] { distgrad::detail::read_status(in); }));
  }
  out.number(std::uint8_t{0});
  Reader in(out.bytes());
  CHECK(is_refused([&] { distgrad::detail::read_status(in); }));
}

TEST_CASE("a status with an absurd number of peers is refused before memory is taken") {
  for (std::size_t at : {21, 29}) {  // where the number of peers and of awaited messages stand
    Writer out;
    distgrad::detail::write_status(out, {});
    out.patch(at, std::uint64_t{1} << 60);
    Reader in(out.bytes());
    CHECK(is_refused([&] { distgrad::detail::read_status(in); }));
  }
}
