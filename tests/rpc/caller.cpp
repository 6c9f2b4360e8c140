#include <distgrad/rpc/caller.hpp>

#include <atomic>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <distgrad/testing/manual_clock.hpp>

namespace caller_tests {

using namespace distgrad;
using namespace std::chrono_literals;

namespace {

constexpr WorkerId one{1}, two{2};

struct Fixture {
  Membership members{WorkerId{0}, {{"a", {0}, {}}, {"b", {1}, {}}, {"c", {2}, {}}}};
  testing::ManualClock clock;
  Caller caller{members, clock};

  /// What became of one call.
  struct Call {
    CallId id;
    int ends = 0;
    error_code code;
    std::string text;
    Message answer;
  };
  std::vector<std::unique_ptr<Call>> calls;

  Call& begin(WorkerId to, std::chrono::nanoseconds timeout = 0s) {
    auto& call = *calls.emplace_back(std::make_unique<Call>());
    call.id = caller.begin(to, "ns::f", timeout, [&call](std::exception_ptr error, Message m) {
      ++call.ends;
      auto const report = describe(error);
      call.code = report.code;
      call.text = report.text;
      call.answer = std::move(m);
    });
    return call;
  }
  static Message answer(CallId call, std::uint32_t flags = 0) {
    return {.kind = FrameKind::reply, .flags = flags, .call = call, .metadata = {}, .buffers = {}};
  }
  bool is_empty() const { return caller.pending() == 0 && caller.deadlines() == 0; }
};

bool contains(std::string const& text, std::initializer_list<char const*> parts) {
  for (auto const* part : parts) {
    if (text.find(part) == text.npos) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("an answer ends its call, and no other") {
  Fixture f;
  auto& first = f.begin(one, 1s);
  auto& second = f.begin(one, 1s);
  CHECK(first.id != second.id);
  CHECK(f.caller.pending() == 2);
  CHECK(f.caller.deadlines() == 2);
  f.caller.answered(one, f.answer(second.id, 42));
  CHECK(second.ends == 1);
  CHECK_FALSE(second.code);
  CHECK(second.answer.flags == 42);
  CHECK(first.ends == 0);
  f.caller.answered(one, f.answer(first.id));
  CHECK(first.ends == 1);
  CHECK(f.is_empty());
  CHECK(f.caller.begun() == 2);
}

TEST_CASE("answers that nobody waits for, or that another worker sent, are dropped") {
  Fixture f;
  auto& call = f.begin(one);
  f.caller.answered(two, f.answer(call.id));  // not its to answer
  f.caller.answered(one, f.answer({99}));
  f.caller.answered(one, f.answer({}));
  CHECK(call.ends == 0);
  f.caller.answered(one, f.answer(call.id));
  f.caller.answered(one, f.answer(call.id));
  CHECK(call.ends == 1);
}

TEST_CASE("a call ends at its deadline with a text that says who, what, how long, what to do") {
  Fixture f;
  auto& call = f.begin(one, 100ms);
  auto& patient = f.begin(two, 0s);
  CHECK(f.caller.next_deadline().has_value());
  f.clock.advance(99ms);
  f.caller.expire(f.clock.now());
  CHECK(call.ends == 0);
  f.clock.advance(3ms);
  f.caller.expire(f.clock.now());
  CHECK(call.ends == 1);
  CHECK(call.code == errc::timeout);
  CHECK(contains(call.text, {"'ns::f'", "'b'", "102 ms", "within(", "rpc_timeout"}));
  f.caller.answered(one, f.answer(call.id));  // late
  CHECK(call.ends == 1);
  f.clock.advance(1000h);
  f.caller.expire(f.clock.now());
  CHECK(patient.ends == 0);
}

TEST_CASE("a lost worker ends its calls, and only its") {
  Fixture f;
  auto& to_one = f.begin(one, 1s);
  auto& to_two = f.begin(two, 1s);
  f.clock.advance(7ms);
  f.caller.fail_peer(one, errc::peer_lost);
  CHECK(to_one.ends == 1);
  CHECK(to_one.code == errc::peer_lost);
  CHECK(contains(to_one.text, {"'ns::f'", "'b'", "7 ms"}));
  CHECK(to_two.ends == 0);
  auto& later = f.begin(one);  // whether it can be sent, the transport says
  CHECK(later.ends == 0);
}

TEST_CASE("the text of `closed` says which side was shut down") {
  Fixture f;
  auto& theirs = f.begin(one);
  auto& ours = f.begin(two);
  f.caller.fail_peer(one, errc::closed);
  CHECK(theirs.code == errc::closed);
  CHECK(contains(theirs.text, {"that worker was shut down"}));
  f.caller.close();
  CHECK(ours.code == errc::closed);
  CHECK(contains(ours.text, {"this engine was shut down"}));
}

TEST_CASE("after close a call ends at once, and nothing is left") {
  Fixture f;
  auto& before = f.begin(one, 1s);
  f.caller.close();
  CHECK(before.ends == 1);
  auto& after = f.begin(one, 1s);
  CHECK(after.ends == 1);
  CHECK(after.code == errc::closed);
  CHECK(f.is_empty());
  f.caller.close();
  CHECK(before.ends == 1);
}

TEST_CASE("a withdrawn call tells nobody, a failed one its error") {
  Fixture f;
  auto& withdrawn = f.begin(one, 1s);
  auto& failed = f.begin(one, 1s);
  f.caller.withdraw(withdrawn.id);
  f.caller.withdraw(withdrawn.id);
  f.caller.fail(failed.id, std::make_exception_ptr(Error(errc::refused, "no")));
  f.caller.fail(failed.id, std::make_exception_ptr(Error(errc::refused, "no")));
  CHECK(withdrawn.ends == 0);
  CHECK(failed.ends == 1);
  CHECK(failed.code == errc::refused);
  CHECK(f.is_empty());
}

TEST_CASE("a loop that sleeps longer than a new call may take is told so, once") {
  Fixture f;
  CHECK(f.caller.plan_turn() == time_point::max());
  CHECK_FALSE(f.caller.is_turn_overdue());
  f.begin(one, 1s);
  CHECK(f.caller.is_turn_overdue());
  CHECK_FALSE(f.caller.is_turn_overdue());
  CHECK(f.caller.plan_turn() == f.clock.now() + 1s);
  f.begin(one, 2s);
  CHECK_FALSE(f.caller.is_turn_overdue());
  f.begin(one, 10ms);
  CHECK(f.caller.is_turn_overdue());
  CHECK(f.caller.plan_turn() == f.clock.now() + 10ms);
  f.clock.advance(10ms);
  f.caller.expire(f.clock.now());
  CHECK(f.caller.plan_turn() == f.clock.now() + 990ms);
}

TEST_CASE("handlers are called outside of the lock: they may use the caller") {
  Fixture f;
  int ends = 0;
  f.caller.begin(one, "f", 0s, [&](std::exception_ptr, Message) {
    ++ends;
    f.begin(two);
    CHECK(f.caller.pending() == 1);
  });
  f.caller.fail_peer(one, errc::peer_lost);
  CHECK(ends == 1);
}

TEST_CASE("each of many calls ends once, whoever ends it") {
  Fixture f;
  constexpr int count = 2000;
  std::vector<std::atomic<int>> ends(count);
  std::vector<CallId> ids(count);
  for (int i = 0; i < count; ++i) {
    ids[i] = f.caller.begin(one, "f", 1ms, [&ends, i](std::exception_ptr, Message) { ++ends[i]; });
  }
  f.clock.advance(1s);
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (auto id : ids) f.caller.answered(one, Fixture::answer(id));
  });
  threads.emplace_back([&] {
    for (int i = count - 1; i >= 0; --i) f.caller.fail(ids[i], nullptr);
  });
  threads.emplace_back([&] { f.caller.expire(f.clock.now()); });
  for (auto& thread : threads) thread.join();
  for (auto const& end : ends) CHECK(end == 1);
  CHECK(f.is_empty());
}

}  // namespace caller_tests
