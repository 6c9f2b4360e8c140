#include <distgrad/observe/trace.hpp>

#include <algorithm>
#include <thread>

#include <distgrad/observe/detail/trace_lanes.hpp>
#include <distgrad/observe/observer.hpp>

#include <doctest/doctest.h>

namespace trace_tests {

using namespace distgrad;
using distgrad::detail::TraceLanes;

namespace {

using Kind = TraceLanes::Kind;

GradientMark marked(std::uint64_t bytes) { return {{}, {}, {}, true, bytes, {}}; }

std::vector<std::size_t> lanes_of(std::vector<TraceLanes::Span> spans) {
  TraceLanes::assign(spans);
  std::vector<std::size_t> lanes;
  for (auto const& span : spans) lanes.push_back(span.lane);
  return lanes;
}
using Lanes = std::vector<std::size_t>;

struct Fixture {
  Observer observer{WorkerId{0}, {{{"a", {0}, {}}, "here"}, {{"b", {1}, {}}, "there"}}, 100};

  template <class Event>
  Event only() {
    auto const events = observer.trace()->snapshot();
    REQUIRE(events.size() == 1);
    return std::get<Event>(events[0]);
  }
};

}  // namespace

TEST_CASE("a trace keeps the first events and counts the rest") {
  Trace trace(1500);  // no whole number of chunks
  for (std::uint64_t i = 0; i < 1510; ++i) trace.add(marked(i));
  auto const events = trace.snapshot();
  REQUIRE(events.size() == 1500);
  CHECK(std::get<GradientMark>(events.front()).bytes == 0);
  CHECK(std::get<GradientMark>(events.back()).bytes == 1499);
  CHECK(trace.dropped() == 10);
}

TEST_CASE("threads add to a trace at once, and none is lost or torn") {
  constexpr std::uint64_t each = 3000;
  Trace trace(4 * each - 5);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < each; ++i) {
        auto event = marked(t * each + i);
        event.message.sequence = event.bytes;
        trace.add(event);
      }
    });
  }
  bool is_whole = true;
  for (int i = 0; i < 20; ++i) {  // somebody looks meanwhile
    for (auto const& event : trace.snapshot()) {
      auto const& mark = std::get<GradientMark>(event);
      is_whole = is_whole && mark.message.sequence == mark.bytes;
    }
  }
  for (auto& thread : threads) thread.join();
  CHECK(is_whole);
  CHECK(trace.dropped() == 5);
  std::vector<std::uint64_t> numbers;
  for (auto const& event : trace.snapshot()) numbers.push_back(std::get<GradientMark>(event).bytes);
  std::ranges::sort(numbers);
  CHECK(numbers.size() == 4 * each - 5);
  CHECK(std::ranges::adjacent_find(numbers) == numbers.end());
}

TEST_CASE("spans of one lane are apart or inside one another") {
  CHECK(lanes_of({{0, 10, 0, Kind::function}, {2, 8, 0, Kind::call}, {8, 9, 0, Kind::call}}) ==
        Lanes{0, 0, 0});
  CHECK(lanes_of({{5, 15, 0, Kind::function}, {0, 10, 0, Kind::function}}) == Lanes{1, 0});
  CHECK(lanes_of({{0, 10, 0, Kind::function}, {5, 15, 1, Kind::function}}) == Lanes{0, 0});
  CHECK(lanes_of({{0, 4, 0, Kind::pass}, {1, 6, 0, Kind::call}, {5, 6, 0, Kind::function}}) ==
        Lanes{0, 1, 0});
}

TEST_CASE("calls and passes that are under way at once lie side by side") {
  CHECK(lanes_of({{0, 10, 0, Kind::call}, {2, 8, 0, Kind::call}}) == Lanes{0, 1});
  CHECK(lanes_of({{0, 10, 0, Kind::pass}, {2, 8, 0, Kind::pass}}) == Lanes{0, 1});
  // A handler that runs while its thread waits for a call is inside that call.
  CHECK(lanes_of({{0, 10, 0, Kind::call}, {2, 8, 0, Kind::function}, {3, 7, 0, Kind::call}}) ==
        Lanes{0, 0, 0});
}

TEST_CASE_FIXTURE(Fixture, "a call is traced with its id, its size and its error, once") {
  {
    auto probe = CallProbe::of_made(&observer, "f", WorkerId{1});
    auto* const place = probe.id_place();
    auto moved = std::move(probe);
    REQUIRE(place != nullptr);
    *place = CallId{7};
    moved.sent(100);
    moved.received(20);
    CHECK(observer.trace()->snapshot().empty());
    moved.end(errc::timeout);
  }
  auto const call = only<CallSpan>();
  CHECK((call.side == CallSpan::Side::caller));
  CHECK(call.function == "f");
  CHECK(call.peer == WorkerId{1});
  CHECK(call.call == CallId{7});
  CHECK(call.sent_bytes == 100);
  CHECK(call.received_bytes == 20);
  CHECK(call.error == errc::timeout);
  CHECK(call.awaits_result);
  CHECK(call.ended >= call.began);
  CHECK(call.thread == std::this_thread::get_id());
}

TEST_CASE_FIXTURE(Fixture, "a function is traced from its start, on the thread that runs it") {
  auto probe = CallProbe::of_served(&observer, "f", WorkerId{1}, CallId{7});
  std::thread::id ran_on;
  std::thread([&] {
    ran_on = std::this_thread::get_id();
    probe.start();
  }).join();
  probe.end({});
  auto const call = only<CallSpan>();
  CHECK((call.side == CallSpan::Side::callee));
  CHECK(call.call == CallId{7});
  CHECK(call.began > call.arrived);
  CHECK(call.ended >= call.began);
  CHECK(call.thread == ran_on);
}

TEST_CASE_FIXTURE(Fixture, "a pass is traced with its record, gradients as they come and go") {
  PassId const id{{{0}, {5}, 1}, {0}, 3};
  AutogradMessageId const message{{1}, {6}, 2};
  PassProbe probe(&observer, id, true, false);
  probe.gradient_received(WorkerId{1}, message);
  probe.gradient_sent(WorkerId{1}, message, 64);
  probe.end(1, 1, errc::pass_aborted);
  auto const events = observer.trace()->snapshot();
  REQUIRE(events.size() == 3);
  auto const& received = std::get<GradientMark>(events[0]);
  CHECK_FALSE(received.is_sent);
  CHECK(received.pass == id);
  CHECK(received.message == message);
  CHECK(received.peer == WorkerId{1});
  auto const& sent = std::get<GradientMark>(events[1]);
  CHECK(sent.is_sent);
  CHECK(sent.bytes == 64);
  auto const& pass = std::get<PassSpan>(events[2]);
  CHECK(pass.record.id == id);
  CHECK(pass.record.error == errc::pass_aborted);
  CHECK(pass.began <= received.at);
  CHECK(pass.ended >= sent.at);
}

TEST_CASE("an observer without a trace gives probes nothing to fill") {
  Observer observer(WorkerId{0}, {{{"a", {0}, {}}, "here"}});
  CHECK(observer.trace() == nullptr);
  auto probe = CallProbe::of_made(&observer, "f", WorkerId{0});
  CHECK(bool(probe));
  CHECK(probe.id_place() == nullptr);
  probe.sent(1);
  probe.start();
  probe.end({});
}

}  // namespace trace_tests
