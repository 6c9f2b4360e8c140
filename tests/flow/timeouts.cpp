// How long a call may take, who decides it, and what happens then.
#include "rig.hpp"

#include <condition_variable>
#include <mutex>

#include <distgrad/testing/manual_clock.hpp>

namespace timeouts_tests {

namespace {
namespace timeouts {

using namespace std::chrono_literals;
using distgrad::errc;
using distgrad::Future;
using distgrad::within;
using distgrad::Worker;
using distgrad::testing::ManualClock;

std::mutex mutex;
std::condition_variable changed;
bool is_open = false;
int served = 0;

void set_open(bool open) {
  std::lock_guard lock(mutex);
  is_open = open;
  changed.notify_all();
}
/// A function that takes as long as the test wants.
int held(int x) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, 60s, [] { return is_open; });
  ++served;
  return x;
}
int at_once(int x) { return x; }

/// Opens the gate at the end, so that no handler outlives a failed test for long.
struct Held {
  Held() {
    set_open(false);
    served = 0;
  }
  ~Held() { set_open(true); }
};

template <class Engine>
typename Engine::Options options(std::shared_ptr<ManualClock> const& clock) {
  auto options = rig::options<Engine>();
  options.clock = clock;
  options.rpc_timeout = 60s;
  options.queues.threads = 8;  // held functions must not hold back others
  return options;
}

/// Moves the time, and makes the loop of `self` see it.
void advance(Worker& self, ManualClock& clock, std::chrono::nanoseconds by) {
  clock.advance(by);
  self.make_rref(0).handle().table().agent().host().wake();
}

bool is_timed_out(Future<int> const& call) {
  return call.wait_for(30s) && rig::error_of([&] { call.get(); }) == errc::timeout;
}

/// A loop turn that came after all earlier changes of the time.
void settle(Worker& self) { self.rpc_sync<at_once>(self.rank(), 0); }

void check_default(Worker& self, ManualClock& clock) {
  CHECK((self.rpc_timeout() == 60s));
  auto const first = self.rpc_async<held>("worker1", 1);
  self.set_rpc_timeout(100s);
  CHECK((self.rpc_timeout() == 100s));
  auto const second = self.rpc_async<held>("worker1", 2);
  advance(self, clock, 59s);
  settle(self);
  CHECK_FALSE(first.is_ready());
  advance(self, clock, 2s);
  CHECK(is_timed_out(first));
  CHECK_FALSE(second.is_ready());
  advance(self, clock, 40s);
  CHECK(is_timed_out(second));
}

void check_override(Worker& self, ManualClock& clock) {
  auto const brief = self.rpc_async<held>(within(1s, "worker1"), 1);
  auto const usual = self.rpc_async<held>("worker1", 2);
  auto const patient = self.rpc_async<held>(within(1h, 1), 3);
  advance(self, clock, 2s);
  CHECK(is_timed_out(brief));
  CHECK_FALSE(usual.is_ready());
  advance(self, clock, 60s);
  CHECK(is_timed_out(usual));
  CHECK_FALSE(patient.is_ready());
  set_open(true);
  CHECK(patient.get() == 3);
}

void check_no_limit(Worker& self, ManualClock& clock) {
  auto const by_call = self.rpc_async<held>(within(0s, "worker1"), 1);
  self.set_rpc_timeout(0s);
  auto const by_default = self.rpc_async<held>("worker1", 2);
  CHECK(self.debug_info().call_deadlines == 0);
  advance(self, clock, 24h * 365 * 50);
  settle(self);
  CHECK_FALSE(by_call.is_ready());
  CHECK_FALSE(by_default.is_ready());
  set_open(true);
  CHECK(by_call.get() == 1);
  CHECK(by_default.get() == 2);
}

void check_negative(Worker& self) {
  CHECK(rig::error_of([&] { self.set_rpc_timeout(-1ns); }) == errc::invalid_argument);
  CHECK((self.rpc_timeout() == 60s));
  CHECK(rig::error_of([&] { self.rpc_async<at_once>(within(-1s, "worker1"), 1); }) ==
        errc::invalid_argument);
}

void check_late_answer(Worker& self, ManualClock& clock) {
  auto const late = self.rpc_async<held>(within(1s, "worker1"), 1);
  auto continued = std::make_shared<std::atomic<int>>(0);
  auto const after = late.then([continued](auto const&) { ++*continued; });
  advance(self, clock, 2s);
  CHECK(is_timed_out(late));
  set_open(true);
  REQUIRE(rig::eventually([] {
    std::lock_guard lock(mutex);
    return served == 1;
  }));
  CHECK(self.rpc_sync<held>("worker1", 5) == 5);  // comes after the late answer
  CHECK(is_timed_out(late));
  after.wait();
  CHECK(*continued == 1);
  CHECK(self.debug_info().pending_calls == 0);
  CHECK(self.debug_info().call_deadlines == 0);
}

void check_text(Worker& self, ManualClock& clock) {
  auto const call = self.rpc_async<held>(within(1500ms, "worker1"), 1);
  advance(self, clock, 1700ms);
  REQUIRE(is_timed_out(call));
  auto const text = rig::text_of([&] { call.get(); });
  for (auto const* part : {"'worker1'", "timeouts::held", "1700 ms", "within(", "rpc_timeout"}) {
    CAPTURE(part);
    CHECK(text.find(part) != text.npos);
  }
}

void check_real_time(Worker& self) {
  auto const before = distgrad::Clock::now();
  auto const call = self.rpc_async<held>(within(30ms, "worker1"), 1);
  CHECK(is_timed_out(call));
  CHECK(distgrad::Clock::now() - before >= 30ms);
  CHECK(self.rpc_sync<at_once>(within(30s, "worker1"), 4) == 4);
  CHECK(rig::error_of([&] { self.rpc_sync<held>(within(1ns, "worker1"), 1); }) == errc::timeout);
}

}  // namespace timeouts
}  // namespace

TEST_CASE_TEMPLATE("[RPC-28] a call takes the default time limit of the moment it is made", Engine,
                   DISTGRAD_ENGINES) {
  auto const clock = std::make_shared<timeouts::ManualClock>();
  rig::Cluster<2, Engine> cluster(timeouts::options<Engine>(clock));
  timeouts::Held held;
  timeouts::check_default(cluster[0], *clock);
}

TEST_CASE_TEMPLATE("[RPC-28] a call's own time limit replaces the default", Engine,
                   DISTGRAD_ENGINES) {
  auto const clock = std::make_shared<timeouts::ManualClock>();
  rig::Cluster<2, Engine> cluster(timeouts::options<Engine>(clock));
  timeouts::Held held;
  timeouts::check_override(cluster[0], *clock);
}

TEST_CASE_TEMPLATE("[RPC-28] zero is no limit, and a negative time limit is refused", Engine,
                   DISTGRAD_ENGINES) {
  auto const clock = std::make_shared<timeouts::ManualClock>();
  rig::Cluster<2, Engine> cluster(timeouts::options<Engine>(clock));
  timeouts::Held held;
  timeouts::check_negative(cluster[0]);
  timeouts::check_no_limit(cluster[0], *clock);
}

TEST_CASE_TEMPLATE("[RPC-28] an answer that comes too late is dropped", Engine, DISTGRAD_ENGINES) {
  auto const clock = std::make_shared<timeouts::ManualClock>();
  rig::Cluster<2, Engine> cluster(timeouts::options<Engine>(clock));
  timeouts::Held held;
  timeouts::check_late_answer(cluster[0], *clock);
}

TEST_CASE_TEMPLATE("[RPC-28] the error says who, what, how long, and what to try", Engine,
                   DISTGRAD_ENGINES) {
  auto const clock = std::make_shared<timeouts::ManualClock>();
  rig::Cluster<2, Engine> cluster(timeouts::options<Engine>(clock));
  timeouts::Held held;
  timeouts::check_text(cluster[0], *clock);
}

TEST_CASE_TEMPLATE("[RPC-28] deadlines come by themselves on the system's clock", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  timeouts::Held held;
  timeouts::check_real_time(cluster[0]);
}

TEST_CASE("[RPC-28] an engine refuses a negative time limit before it meets anybody") {
  auto options = rig::options<rig::LoopbackEngine>();
  options.rpc_timeout = -std::chrono::seconds(1);
  CHECK(rig::error_of([&] { rig::LoopbackEngine engine(options); }) ==
        distgrad::errc::invalid_argument);
}

}  // namespace timeouts_tests
