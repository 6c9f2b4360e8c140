#include <distgrad/rpc/draft.hpp>

#include "fake_host.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

namespace draft_tests {

using namespace distgrad;

namespace {

/// Writes and reads a number, as the recorder does an autograd message id.
class Marker : public Interceptor {
 public:
  void leaving(CallState const& state, WorkerId to, bool is_call,
               std::span<at::Tensor const> tensors, Writer& extends) override {
    left = {state != nullptr, to, is_call, tensors.size()};
    extends.number(std::uint64_t{77});
  }
  CallState arriving(WorkerId from, bool is_call, ReceivedTensors& tensors,
                     Reader& extends) override {
    arrived = {extends.number<std::uint64_t>() == 77, from, is_call, tensors.tensors.size()};
    for (auto& tensor : tensors.tensors) {
      if (tensor.defined()) tensor = tensor.add(1);
    }
    return state;
  }
  CallState current() const override { return installed; }
  CallState install(CallState next) override { return std::exchange(installed, std::move(next)); }

  struct Seen {
    bool flag = false;
    WorkerId peer;
    bool is_call = false;
    std::size_t tensors = 0;
    bool operator==(Seen const&) const = default;
  };
  Seen left, arrived;
  CallState state = std::make_shared<int>(1), installed;
};

struct Sent {
  fake_host::FakeHost host;
  Services services;
  Marker marker;

  Message seal(Draft draft, bool marked = true) {
    return draft.seal(FrameKind::call, {5}, host, marked ? &marker : nullptr, marker.state, true);
  }
  Message two_values_and_tensors() {
    Draft draft({2}, services);
    draft.prefix().text("prefix");
    draft.value(1234);
    draft.value(at::ones({2}));
    draft.value(std::string("text"));
    draft.value(std::vector<at::Tensor>{at::arange(3), at::Tensor()});
    CHECK(draft.to() == WorkerId{2});
    return seal(std::move(draft));
  }
};
constexpr std::size_t prefix_bytes = 4 + 6;  // length and characters of "prefix"

error_code error_of_open(Sent& sent, Message message, std::size_t prefix = prefix_bytes) {
  try {
    Arrival arrival({1}, std::move(message), prefix);
    arrival.open(sent.host, &sent.marker, true);
    auto decoder = arrival.decoder(sent.services);
    decode_values<int, at::Tensor, std::string, std::vector<at::Tensor>>(decoder);
    if (!values_end(decoder)) return errc::bad_value;
  } catch (Error const& error) {
    return error.code();
  }
  return {};
}

}  // namespace

TEST_CASE("what a draft wrote an arrival reads: prefix, values, tensors, extension") {
  Sent sent;
  auto message = sent.two_values_and_tensors();
  CHECK(message.kind == FrameKind::call);
  CHECK(message.call == CallId{5});
  CHECK((sent.marker.left == Marker::Seen{true, {2}, true, 3}));

  Reader prefix(message.metadata);
  CHECK(prefix.text() == "prefix");
  Arrival arrival({1}, std::move(message), prefix_bytes);
  arrival.open(sent.host, &sent.marker, true);
  CHECK((sent.marker.arrived == Marker::Seen{true, {1}, true, 3}));
  CHECK(arrival.from() == WorkerId{1});
  CHECK(arrival.call() == CallId{5});
  CHECK(arrival.state() == sent.marker.state);
  auto decoder = arrival.decoder(sent.services);
  CHECK(decoder.peer == WorkerId{1});
  auto const [number, ones, text, list] =
      decode_values<int, at::Tensor, std::string, std::vector<at::Tensor>>(decoder);
  CHECK(values_end(decoder));
  CHECK(number == 1234);
  CHECK(ones.equal(at::ones({2}).add(1)));  // as the interceptor left them
  CHECK(text == "text");
  CHECK(list.at(0).equal(at::arange(3).add(1)));
}

TEST_CASE("a draft may have no values, and no interceptor") {
  Sent sent;
  auto message = sent.seal(Draft({2}, sent.services), false);
  Arrival arrival({1}, std::move(message), 0);
  arrival.open(sent.host, nullptr, true);
  CHECK(arrival.state() == nullptr);
  CHECK(values_end(arrival.decoder(sent.services)));
}

TEST_CASE("values whose type is erased follow the others") {
  Sent sent;
  Draft draft({2}, sent.services);
  draft.value(1);
  auto out = draft.encoder();
  CHECK(out.peer == WorkerId{2});
  Codec<std::string>::encode(out, "two");
  Arrival arrival({1}, sent.seal(std::move(draft)), 0);
  arrival.open(sent.host, &sent.marker, true);
  auto decoder = arrival.decoder(sent.services);
  CHECK((decode_values<int, std::string>(decoder) == std::tuple(1, std::string("two"))));
}

TEST_CASE("metadata that is cut off anywhere is an error, never a crash") {
  Sent sent;
  auto const whole = sent.two_values_and_tensors();
  CHECK_FALSE(error_of_open(sent, whole));
  for (std::size_t size = prefix_bytes; size < whole.metadata.size(); ++size) {
    CAPTURE(size);
    auto message = whole;
    message.metadata.resize(size);
    CHECK(error_of_open(sent, std::move(message)) == errc::bad_value);
  }
}

TEST_CASE("any changed byte of metadata is survived") {
  Sent sent;
  auto const whole = sent.two_values_and_tensors();
  for (std::size_t at = prefix_bytes; at < whole.metadata.size(); ++at) {
    for (auto const value : {std::byte{0}, std::byte{0x7f}, std::byte{0xff}}) {
      auto message = whole;
      message.metadata[at] = value;
      auto const code = error_of_open(sent, std::move(message));
      CHECK((!code || code.category() == distgrad_category()));
    }
  }
}

TEST_CASE("a scope installs a call's state and puts back what was there") {
  Marker marker;
  auto const outer = std::make_shared<int>(1), inner = std::make_shared<int>(2);
  marker.installed = outer;
  {
    CallStateScope scope(&marker, inner);
    CHECK(marker.current() == inner);
    CallStateScope nothing(&marker, nullptr);
    CHECK(marker.current() == nullptr);
  }
  CHECK(marker.current() == outer);
  CallStateScope without(nullptr, inner);  // no interceptor, no state
}

}  // namespace draft_tests
