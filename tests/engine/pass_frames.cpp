#include <distgrad/engine/pass_frames.hpp>

#include "../autograd/recording_host.hpp"

#include <doctest/doctest.h>
#include <distgrad/core/error.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include <random>
#include <set>
#include <string>
#include <utility>

namespace pass_frames_tests {

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
  Message written(variable_list const& gradients, PassOptions options = {},
                  AutogradMessageId recorded = {}) {
    return written(gradients, Lives(gradients.size(), true), options, recorded);
  }
  Message written(variable_list const& gradients, Lives const& lives, PassOptions options = {},
                  AutogradMessageId recorded = {}) {
    return distgrad::detail::gradient_message(host, pass, options, message, recorded, gradients,
                                              lives);
  }
  distgrad::detail::GradientFrame round_trip(variable_list const& gradients,
                                             PassOptions options = {},
                                             AutogradMessageId recorded = {}) {
    auto const frame = written(gradients, options, recorded);
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
  return {7,
          true,
          11,
          12,
          {WorkerId{1}, WorkerId{9}},
          {{message, WorkerId{2}}, {{WorkerId{3}, Incarnation{1}, 4}, WorkerId{5}}},
          "MulBackward0"};
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

TEST_CASE_FIXTURE(Fixture, "which gradients live arrives") {
  Lives const lives{true, false, true, false, false, false, false, false, true, false};
  variable_list gradients(lives.size());
  gradients[2] = at::ones({2});
  auto const frame = written(gradients, lives);
  CHECK(read(frame.metadata, frame.buffers).lives == lives);
  auto const dead = written(gradients, Lives(lives.size(), false));
  CHECK(is_refused([&] { read(dead.metadata, dead.buffers); }));
}

TEST_CASE_FIXTURE(Fixture, "an undefined gradient takes two bits") {
  auto const size = [&](std::size_t count) {
    auto const frame = written(variable_list(count));
    CHECK(frame.buffers.empty());
    return frame.metadata.size();
  };
  CHECK(size(800) == size(8) + 2 * 99);
}

TEST_CASE("options differ in their bits") {
  for (unsigned bits = 0; bits < 256; ++bits) {
    CHECK(PassOptions::from_bits(std::uint8_t(bits)).bits() == bits);
  }
  CHECK(PassOptions{}.is_smart);
}

TEST_CASE_FIXTURE(Fixture, "every option arrives with gradients") {
  for (unsigned bits = 0; bits < 256; ++bits) {
    auto const options = PassOptions::from_bits(std::uint8_t(bits));
    CHECK((round_trip({at::ones({2})}, options).options == options));
  }
}

TEST_CASE_FIXTURE(Fixture, "recorded gradients arrive with the id of their record") {
  AutogradMessageId const recorded{WorkerId{9}, Incarnation{1}, 77};
  auto const graph = at::ones({2}).set_requires_grad(true).mul(2);
  auto const arrived = round_trip({graph, at::ones({2}), at::Tensor()}, {}, recorded);
  CHECK(arrived.recorded == recorded);
  CHECK(arrived.differentiable().size() == 1);
  auto const plain = round_trip({graph, at::ones({2})});
  CHECK_FALSE(plain.recorded.is_valid());
  CHECK(plain.differentiable().empty());
}

TEST_CASE_FIXTURE(Fixture, "sparse gradients and those of other types arrive") {
  auto const sparse = at::ones({3, 3}).to_sparse(), half = at::ones({2}).to(at::kHalf);
  auto const arrived = round_trip({sparse, half}).gradients;
  CHECK(arrived[0].is_sparse());
  CHECK(arrived[0].to_dense().equal(sparse.to_dense()));
  CHECK((arrived[1].scalar_type() == at::kHalf));
}

TEST_CASE_FIXTURE(Fixture, "a gradient message that is cut off is refused") {
  auto const frame = written({at::ones({2}), at::Tensor(), at::ones({3})});
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
  out.number(PassOptions{}.bits());
  out.id(message);
  out.id(AutogradMessageId{});
  out.number(std::uint32_t{0xffffffff});
  out.raw(std::vector<std::byte>(100));
  CHECK(is_refused([&] { read(out.bytes(), {}); }));
}

TEST_CASE_FIXTURE(Fixture, "bits that do not match the tensors are refused") {
  auto frame = written({at::ones({2}), at::Tensor(), at::ones({3})});
  auto& bits = frame.metadata[pass_id_bytes + 1 + 16 + 16 + 4];
  REQUIRE(bits == std::byte{0b101});
  for (auto wrong : {0b000, 0b001, 0b111}) {
    CAPTURE(wrong);
    bits = std::byte(wrong);
    CHECK(is_refused([&] { read(frame.metadata, frame.buffers); }));
  }
}

TEST_CASE_FIXTURE(Fixture, "damaged gradient messages give an error or gradients, nothing else") {
  std::mt19937 random(3);
  auto const frame = written({at::ones({2, 2}), at::Tensor(), at::ones({3})});
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

namespace {

/// What follows the pass id of a frame.
template <class Read>
auto after_id(Message const& frame, Read read) {
  Reader in(frame.metadata);
  CHECK(in.id<PassId>() == pass);
  return read(in);
}
/// Every way to cut a frame short, and one byte too many.
template <class Read>
void refuses_other_lengths(Message frame, Read read) {
  for (std::size_t size = pass_id_bytes; size < frame.metadata.size(); ++size) {
    CAPTURE(size);
    Reader in(std::span<std::byte const>(frame.metadata).first(size));
    in.id<PassId>();
    CHECK(is_refused([&] { read(in); }));
  }
  frame.metadata.push_back(std::byte{0});
  CHECK(is_refused([&] { after_id(frame, read); }));
}
constexpr auto read_discover = [](Reader& in) { return distgrad::detail::read_discover(in); };
constexpr auto read_discovered = [](Reader& in) { return distgrad::detail::read_discovered(in); };

}  // namespace

TEST_CASE("a question of the discovery arrives as it was sent, and in no other length") {
  PassOptions const options{.is_smart = true, .create_graph = true, .is_restricted = true};
  for (std::size_t count : {0, 1, 5}) {
    std::vector<AutogradMessageId> messages;
    for (std::size_t i = 0; i < count; ++i) messages.push_back({WorkerId{6}, Incarnation{7}, i});
    auto const frame =
        distgrad::detail::discover_message(pass, options, {WorkerId{2}, 0x01020304, messages});
    CHECK((frame.kind == FrameKind::pass_discover));
    auto const got = after_id(frame, read_discover);
    CHECK((got.options == options));
    CHECK(got.number == 0x01020304);
    CHECK((got.messages == messages));
    refuses_other_lengths(frame, read_discover);
  }
}

TEST_CASE("a question of a nested pass names the outermost one") {
  PassOptions const options{.is_nested = true};
  PassId const outermost{{WorkerId{8}, Incarnation{9}, 10}, WorkerId{11}, 12};
  auto const frame =
      distgrad::detail::discover_message(pass, options, {WorkerId{2}, 3, {message}}, outermost);
  auto const got = after_id(frame, read_discover);
  CHECK((got.options == options));
  CHECK((got.outermost == outermost));
  CHECK(got.number == 3);
  refuses_other_lengths(frame, read_discover);
}

TEST_CASE("an answer of the discovery arrives as it was sent, and in no other length") {
  for (auto const& workers : {std::set<WorkerId>{}, {WorkerId{0}}, {WorkerId{3}, WorkerId{900}}}) {
    auto const frame =
        distgrad::detail::discovered_message(pass, {WorkerId{2}, 0x01020304, workers});
    CHECK((frame.kind == FrameKind::pass_discovered));
    auto const got = after_id(frame, read_discovered);
    CHECK(got.number == 0x01020304);
    CHECK((got.participants == workers));
    refuses_other_lengths(frame, read_discovered);
  }
}

TEST_CASE("a discovery with an absurd number of messages is refused before memory is taken") {
  auto question = distgrad::detail::discover_message(pass, {}, {WorkerId{2}, 1, {message}});
  auto answer = distgrad::detail::discovered_message(pass, {WorkerId{2}, 1, {WorkerId{1}}});
  for (std::size_t i = 0; i < 8; ++i) {  // the number is big, whichever end comes first
    question.metadata[pass_id_bytes + 1 + 4 + i] = std::byte{0x3f};
    answer.metadata[pass_id_bytes + 4 + i] = std::byte{0x3f};
  }
  CHECK(is_refused([&] { after_id(question, read_discover); }));
  CHECK(is_refused([&] { after_id(answer, read_discovered); }));
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
    CHECK(got.node == sent.node);
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

}  // namespace pass_frames_tests
