#include <distgrad/observe/observer.hpp>

#include <utility>

#include <doctest/doctest.h>

namespace observer_tests {

using namespace distgrad;

namespace {

struct Fixture {
  Observer observer{WorkerId{0}, {{{"a", {0}, {}}, "here"}, {{"b", {1}, {}}, "there"}}};
  Metrics& metrics = observer.metrics();
  CallSeries& made = metrics.made.at("f", WorkerId{1});
};
using Failures = std::map<std::string, std::uint64_t>;

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a call counts when it begins, and its time when it ends") {
  auto probe = CallProbe::of_made(&observer, "f", WorkerId{1});
  CHECK(bool(probe));
  CHECK(made.begun.value() == 1);
  CHECK(made.duration.snapshot().count == 0);
  probe.end({});
  probe.end({});
  CHECK(made.duration.snapshot().count == 1);
  CHECK(made.failures.snapshot().empty());
  CHECK(metrics.served.all().empty());
}

TEST_CASE_FIXTURE(Fixture, "a call that ended well may turn out to have failed") {
  auto probe = CallProbe::of_made(&observer, "f", WorkerId{1});
  probe.end({});
  probe.end(errc::bad_value);
  probe.end(errc::bad_value);
  CHECK(made.duration.snapshot().count == 1);
  CHECK(made.failures.snapshot() == Failures{{"bad_value", 1}});
}

TEST_CASE_FIXTURE(Fixture, "a call that is dropped was cancelled, once, however often it moved") {
  {
    auto probe = CallProbe::of_made(&observer, "f", WorkerId{1});
    auto moved = std::move(probe);
  }
  CHECK(made.begun.value() == 1);
  CHECK(made.duration.snapshot().count == 1);
  CHECK(made.failures.snapshot() == Failures{{"cancelled", 1}});
}

TEST_CASE_FIXTURE(Fixture, "traffic is counted by peer, direction and kind") {
  observer.sent(WorkerId{1}, TrafficKind::call, 100);
  observer.sent(WorkerId{1}, TrafficKind::call, 20);
  observer.received(WorkerId{1}, TrafficKind::gradient, 7);
  observer.sent(WorkerId{9}, TrafficKind::call, 1);  // of no worker of the group
  auto const& traffic = metrics.traffic[1];
  CHECK(traffic.sent[0].messages.value() == 2);
  CHECK(traffic.sent[0].bytes.value() == 120);
  CHECK(traffic.received[std::size_t(TrafficKind::gradient)].bytes.value() == 7);
  CHECK(metrics.traffic[0].sent[0].messages.value() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a pass counts by mode and role and leaves a record") {
  PassProbe probe(&observer, {{}, {0}, 3}, true, false);
  auto& series = metrics.passes[true][false];
  CHECK(series.begun.value() == 1);
  CHECK(probe.so_far(1, 0).gradients_sent == 1);
  CHECK(metrics.pass_history.snapshot().empty());
  probe.end(4, 5, errc::pass_aborted);
  CHECK(series.duration.snapshot().count == 1);
  CHECK(series.gradients_sent.value() == 4);
  CHECK(series.gradients_received.value() == 5);
  CHECK(series.failures.snapshot() == Failures{{"pass_aborted", 1}});
  auto const records = metrics.pass_history.snapshot();
  REQUIRE(records.size() == 1);
  CHECK(records[0].id.sequence == 3);
  CHECK(records[0].error == errc::pass_aborted);
}

TEST_CASE_FIXTURE(Fixture, "a task waits until it runs or is dropped") {
  bool ran = false;
  {
    auto task = watch_task(observer, [&] {
      ran = true;
      CHECK(metrics.tasks_waiting.value() == 1);  // only the other one
    });
    auto dropped = watch_task(observer, [] {});
    CHECK(metrics.tasks_waiting.value() == 2);
    task();
  }
  CHECK(ran);
  CHECK(metrics.tasks_waiting.value() == 0);
  CHECK(metrics.task_wait.snapshot().count == 1);
}

TEST_CASE("nobody watches: probes do nothing") {
  auto call = CallProbe::of_made(nullptr, "f", WorkerId{1});
  CHECK_FALSE(bool(call));
  call.end(errc::timeout);
  PassProbe pass(nullptr, {}, true, true);
  CHECK_FALSE(bool(pass));
  pass.end(0, 0, {});
}

}  // namespace observer_tests
