#include <distgrad/raw/raw_agent.hpp>
//
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace raw_agent_tests {

namespace {
namespace raw_agent {

using namespace distgrad;
using namespace std::chrono_literals;

/// Two agents; what one sends waits until `deliver` gives it to the other.
struct Pair {
  struct Sent {
    std::uint32_t from, to;
    Message message;
    SendCompletion done;
  };
  std::deque<Sent> wire;
  std::array<std::unique_ptr<RawAgent>, 2> agents;

  Pair() {
    std::vector<WorkerInfo> const group{{"zero", {0}, {1}}, {"one", {1}, {2}}};
    for (std::uint32_t rank : {0u, 1u}) {
      agents[rank] = std::make_unique<RawAgent>(
          WorkerId{rank}, group, [this, rank](WorkerId to, Message message, SendCompletion done) {
            wire.push_back({rank, to.value, std::move(message), std::move(done)});
          });
    }
  }
  RawAgent& zero() { return *agents[0]; }
  RawAgent& one() { return *agents[1]; }

  void settle(time_point now = Clock::now()) {
    do {
      while (!wire.empty()) {
        auto sent = std::move(wire.front());
        wire.pop_front();
        sent.done({});
        agents[sent.to]->on_message({sent.from}, std::move(sent.message));
      }
      for (auto& agent : agents) agent->work(now);
    } while (!wire.empty());
  }
  /// Zero calls `function` of one. @return where the answer will be.
  template <class Function, class... Args>
  std::shared_ptr<std::optional<Result<Message>>> call(std::string const& function,
                                                       Args const&... arguments) {
    RawValues values;
    RawEncoder out{values.writer, values.tensors};
    RawFunction<Function>::encode(out, arguments...);
    auto answer = std::make_shared<std::optional<Result<Message>>>();
    zero().call("one", function,
                make_raw_call(function, RawFunction<Function>::signature, std::move(values)),
                Deadline::after(1h), [answer](Result<Message> r) {
                  REQUIRE_FALSE(answer->has_value());
                  answer->emplace(std::move(r));
                });
    return answer;
  }
};

std::optional<ErrorReport> twice(RawDecoder& in, RawEncoder& out) {
  RawCodec<int>::encode(out, 2 * RawCodec<int>::decode(in));
  return std::nullopt;
}
int int_in(Message const& answer) {
  auto const values = read_raw_values(answer, 0);
  REQUIRE(values.has_value());
  Reader in(values->bytes);
  return in.number<int>();
}

TEST_CASE("a call is run where its function is defined, and its answer comes back once") {
  Pair pair;
  pair.one().define("twice", RawFunction<int(int)>::signature, twice);
  auto const answer = pair.call<int(int)>("twice", 21);
  CHECK_FALSE(answer->has_value());
  CHECK(pair.zero().pending() == 1);
  pair.settle();
  REQUIRE(answer->has_value());
  CHECK(int_in(***answer) == 42);
  CHECK(pair.zero().pending() == 0);
}

TEST_CASE("what cannot be run is answered with the reason") {
  Pair pair;
  pair.one().define("twice", RawFunction<int(int)>::signature, twice);
  pair.one().define("fail", RawFunction<void()>::signature, [](RawDecoder&, RawEncoder&) {
    return ErrorReport{errc::internal, "the sensor is wet"};
  });
  auto const unknown = pair.call<int(int)>("thrice", 1);
  auto const other_types = pair.call<int(float)>("twice", 1.f);
  auto const fails = pair.call<void()>("fail");
  pair.settle();
  CHECK((*unknown)->error().code == errc::unknown_function);
  CHECK((*other_types)->error().code == errc::signature_mismatch);
  CHECK((*fails)->error().code == errc::internal);
  CHECK((*fails)->error().text == "on worker 'one' in 'fail': the sensor is wet");
}

TEST_CASE("values of a remote reference are not kept: who asks is told") {
  Pair pair;
  for (auto const kind : {FrameKind::rref_create, FrameKind::rref_fetch}) {
    pair.one().on_message({0}, Message{.kind = kind, .call = {7}});
    pair.one().work(Clock::now());
    REQUIRE(pair.wire.size() == 1);
    CHECK(pair.wire[0].message.kind == FrameKind::error_reply);
    CHECK(pair.wire[0].message.call == CallId{7});
    pair.wire.clear();
  }
}

TEST_CASE("a tensor that wants its gradient back is refused") {
  Pair pair;
  pair.one().define("twice", RawFunction<int(int)>::signature, twice);
  auto const answer = pair.call<int(int)>("twice", 21);
  auto& metadata = pair.wire[0].message.metadata;
  metadata.back() = std::byte(Extension::recorded);
  metadata.insert(metadata.end(), 32, std::byte{1});  // the ids of a context and a message
  pair.settle();
  CHECK((*answer)->error().code == errc::not_supported);
}

TEST_CASE("a call ends at its deadline, and its answer is dropped when it comes later") {
  Pair pair;
  pair.one().define("twice", RawFunction<int(int)>::signature, twice);
  auto const answer = pair.call<int(int)>("twice", 21);
  auto held = std::move(pair.wire);
  pair.wire.clear();
  auto const deadline = pair.zero().next_deadline();
  pair.zero().work(deadline - 1ms);
  CHECK_FALSE(answer->has_value());
  pair.zero().work(deadline);
  REQUIRE(answer->has_value());
  CHECK((*answer)->error().code == errc::timeout);
  for (auto const* part : {"'twice'", "'one'", "ms ago"}) {
    CHECK((*answer)->error().text.find(part) != std::string::npos);
  }
  pair.wire = std::move(held);
  pair.settle();
  CHECK(pair.zero().pending() == 0);
}

TEST_CASE("calls to a peer that is lost, and those that are not sent, fail") {
  Pair pair;
  auto const first = pair.call<int(int)>("twice", 1), second = pair.call<int(int)>("twice", 2);
  pair.wire[1].done(errc::frame_too_large);
  CHECK_FALSE(second->has_value());  // only work() tells
  pair.zero().on_peer_lost({1}, errc::peer_lost);
  CHECK(pair.zero().next_deadline() == time_point::min());
  pair.zero().work(Clock::now());
  CHECK((*first)->error().code == condition::peer_lost);
  CHECK((*first)->error().text.find("'one'") != std::string::npos);
  REQUIRE(second->has_value());
  pair.zero().close();
  auto const late = pair.call<int(int)>("twice", 3);
  pair.zero().work(Clock::now());
  CHECK((*late)->error().code == errc::closed);
}

TEST_CASE("an unknown worker is an error at once, with the names there are") {
  Pair pair;
  std::optional<Result<Message>> answer;
  pair.zero().call("two", "twice", {}, Deadline::never(),
                   [&](Result<Message> r) { answer.emplace(std::move(r)); });
  REQUIRE(answer.has_value());
  CHECK(answer->error().code == errc::unknown_worker);
  CHECK(answer->error().text.find("'one'") != std::string::npos);
}

TEST_CASE("a payload for which there is no memory fails its call") {
  Pair pair;
  auto const answer = pair.call<int(int)>("twice", 1);
  std::uint64_t const lengths[] = {8, ~std::uint64_t{0}};
  FrameHeader header;
  header.kind = FrameKind::reply;
  header.call = {1};
  CHECK(pair.zero().landing(header, {}, lengths).size() == 1);
  pair.zero().work(Clock::now());
  REQUIRE(answer->has_value());
  CHECK((*answer)->error().code == errc::limit_reached);
}

TEST_CASE("the group ends when both want to, and not while a call is under way") {
  Pair pair;
  pair.one().define("twice", RawFunction<int(int)>::signature, twice);
  pair.one().leave();
  pair.settle();
  CHECK_FALSE(pair.one().has_left());
  auto const answer = pair.call<int(int)>("twice", 4);
  pair.zero().leave();
  pair.settle();
  CHECK(int_in(***answer) == 8);
  CHECK(pair.zero().has_left());
  CHECK(pair.one().has_left());
}

TEST_CASE("messages that are no such message harm nobody") {
  Pair pair;
  pair.one().define("twice", RawFunction<int(int)>::signature, twice);
  for (auto const kind : {FrameKind::call, FrameKind::shutdown_check, FrameKind::reply,
                          FrameKind::context_release, FrameKind::pass_query, FrameKind(0x7f)}) {
    pair.one().on_message({0}, Message{.kind = kind, .call = {1}});
  }
  pair.one().work(Clock::now());
  REQUIRE(pair.wire.size() == 1);  // the call is answered
  Reader in(pair.wire[0].message.metadata);
  CHECK(read_error(in).code == errc::bad_message);
}

}  // namespace raw_agent
}  // namespace

}  // namespace raw_agent_tests
