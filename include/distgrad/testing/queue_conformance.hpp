#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <distgrad/core/blocking.hpp>
#include <distgrad/queue/concept.hpp>

// What every queue policy must do. A plugin's test file:
//
//     struct MyRig {
//       using Queues = MyQueues;
//       static std::unique_ptr<Queues> make();         // any number of tasks at a time
//       static std::unique_ptr<Queues> make_serial();  // one task at a time
//       static c10::Device device();                   // where its tasks run
//       // Queues of devices only: gives work to a stream, for its turn; waits for all of it.
//       static void give(c10::Stream stream, unique_function<void()> work);
//       static void finish();
//     };
//     using namespace distgrad::testing;
//     TEST_CASE_TEMPLATE_INVOKE(queue_conformance, MyRig);

namespace distgrad::testing {

/// Longest wait of a conformance test; reached only when the queue is broken.
inline constexpr std::chrono::seconds queue_patience{30};

/// A counter that tests wait for. @threads safe: shared object.
class Progress {
 public:
  /// Counts one more step.
  void step() {
    std::lock_guard const lock(mutex_);
    ++steps_;
    changed_.notify_all();
  }
  int steps() const {
    std::lock_guard const lock(mutex_);
    return steps_;
  }
  /// Waits without running anything. @return whether `steps` were reached.
  bool await(int steps) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, queue_patience, [&] { return steps_ >= steps; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int steps_ = 0;
};

/// Drives `queues` until `progress` has reached `steps`: polls what has no thread, waits for what
/// has, the way a wait inside a handler does.
template <class Queues>
bool drive(Queues& queues, Progress& progress, int steps) {
  if constexpr (!Queues::is_inline) {
    BlockingRegion const region;
    return progress.await(steps);
  } else {
    auto const give_up = std::chrono::steady_clock::now() + queue_patience;
    while (progress.steps() < steps) {
      if (queues.poll() == 0 && std::chrono::steady_clock::now() > give_up) return false;
    }
    return true;
  }
}

/// Occupies a serial queue until `open` is called, so that tasks can pile up behind it.
template <class Queues>
class Gate {
 public:
  Gate(Queues& queues, c10::Device device) {
    if constexpr (!Queues::is_inline) {
      queues.submit(device, {0, [this] {
                               entered_.step();
                               opened_.await(1);
                             }});
      REQUIRE(entered_.await(1));
    }
  }
  void open() { opened_.step(); }

 private:
  Progress entered_, opened_;
};

/// Runs a task that waits for a task that waits ..., `depth` times.
template <class Queues>
void nest(Queues& queues, c10::Device device, int depth, Progress& done) {
  queues.submit(device, {0, [&queues, &done, device, depth] {
                           Progress inner;
                           if (depth > 1) {
                             nest(queues, device, depth - 1, inner);
                             if (!drive(queues, inner, 1)) return;
                           }
                           done.step();
                         }});
}

/// Work after an event comes after the work before it, and not before.
template <class Rig>
void check_order(typename Rig::Queues& queues) {
  c10::impl::VirtualGuardImpl const guard(Rig::device().type());
  std::span<c10::Stream const> const own = queues.streams();
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> steps = 0, seen = 0;
    auto const other = guard.getStreamFromGlobalPool(own[0].device());
    for (int i = 0; i < 5; ++i) Rig::give(own[0], [&steps] { ++steps; });
    auto event = queues.record(own[0]);
    queues.wait(other, event);
    Rig::give(other, [&] { seen = steps.load(); });
    Rig::finish();
    CHECK(seen == 5);
  }
}

TEST_CASE_TEMPLATE_DEFINE("queue policy", Rig, queue_conformance) {
  using Queues = typename Rig::Queues;
  static_assert(QueuePolicy<Queues>);
  auto const device = Rig::device();

  SUBCASE("every task runs once, whichever thread submits it") {
    auto const queues = Rig::make();
    constexpr int per_thread = 200, submitters = 4;
    Progress done;
    std::vector<std::atomic<int>> runs(per_thread * submitters);
    std::vector<std::thread> threads;
    for (int t = 0; t < submitters; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < per_thread; ++i) {
          auto* const run = &runs[t * per_thread + i];
          queues->submit(device, {std::uint64_t(i % 7), [&done, run] {
                                    run->fetch_add(1);
                                    done.step();
                                  }});
        }
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(drive(*queues, done, per_thread * submitters));
    queues->stop();
    for (auto const& run : runs) CHECK(run.load() == 1);
  }

  SUBCASE("higher priorities run first, equal ones in the order they came") {
    auto const queues = Rig::make_serial();
    Gate<Queues> gate(*queues, device);
    std::vector<int> order;
    Progress done;
    std::vector<std::pair<std::uint64_t, int>> const tasks = {
        {1, 5}, {3, 0}, {2, 2}, {3, 1}, {1, 6}, {2, 3}, {0, 7}, {2, 4}, {~std::uint64_t{0}, -1}};
    for (auto const& [priority, name] : tasks) {
      queues->submit(device, {priority, [&order, &done, name = name] {
                                order.push_back(name);
                                done.step();
                              }});
    }
    gate.open();
    REQUIRE(drive(*queues, done, int(tasks.size())));
    CHECK(order == std::vector<int>{-1, 0, 1, 2, 3, 4, 5, 6, 7});
  }

  SUBCASE("a task may submit tasks and own what cannot be copied") {
    auto const queues = Rig::make_serial();
    Progress done;
    queues->submit(device, {0, [&, owned = std::make_unique<int>(1)] {
                              queues->submit(device, {0, [&done] { done.step(); }});
                              for (int i = 0; i < *owned; ++i) done.step();
                            }});
    CHECK(drive(*queues, done, 2));
  }

  SUBCASE("a task that has run is destroyed") {
    auto const queues = Rig::make();
    auto const token = std::make_shared<int>();
    Progress done;
    queues->submit(device, {0, [&done, token] { done.step(); }});
    REQUIRE(drive(*queues, done, 1));
    queues->stop();
    CHECK(token.use_count() == 1);
  }

  SUBCASE("stop drops the tasks that did not start and waits for those that did") {
    auto const queues = Rig::make_serial();
    auto const token = std::make_shared<int>();
    std::atomic<bool> is_full = false, started_one_ended = false, dropped_one_ran = false;
    Progress started;
    if constexpr (!Queues::is_inline) {
      queues->submit(device, {0, [&, token] {
                                started.step();
                                // Ends only when the task behind it has been dropped.
                                while (!is_full || token.use_count() > 2) std::this_thread::yield();
                                started_one_ended = true;
                              }});
      REQUIRE(started.await(1));
    }
    queues->submit(device, {0, [&, token] { dropped_one_ran = true; }});
    is_full = true;
    queues->stop();
    CHECK(started_one_ended == !Queues::is_inline);
    CHECK(queues->poll() == 0);
    CHECK(!dropped_one_ran);
    CHECK(token.use_count() == 1);
  }

  SUBCASE("after stop a task is dropped, and stop may be called again") {
    auto const queues = Rig::make();
    auto const token = std::make_shared<int>();
    queues->stop();
    queues->submit(device, {0, [token] { FAIL("ran after stop"); }});
    CHECK(queues->poll() == 0);
    queues->stop();
    CHECK(token.use_count() == 1);
  }

  SUBCASE("stop may be called inside a task") {
    auto const queues = Rig::make();
    Progress done;
    queues->submit(device, {0, [&] {
                              queues->stop();
                              done.step();
                            }});
    CHECK(drive(*queues, done, 1));
  }

  SUBCASE("queues may be destroyed with tasks in them") {
    auto const token = std::make_shared<int>();
    {
      auto const queues = Rig::make();
      for (int i = 0; i < 100; ++i) queues->submit(device, {0, [token] {}});
    }
    CHECK(token.use_count() == 1);
  }

  SUBCASE("a task that waits for a task behind it does not block the queue") {
    auto const queues = Rig::make_serial();
    Progress done;
    nest(*queues, device, 100, done);
    CHECK(drive(*queues, done, 1));
  }

  SUBCASE("queues without a thread wake whoever polls them") {
    auto const queues = Rig::make();
    std::atomic<int> wakes = 0;
    queues->on_submit([&wakes] { ++wakes; });
    Progress done;
    queues->submit(device, {0, [&done] { done.step(); }});
    CHECK(drive(*queues, done, 1));
    queues->stop();
    if (Queues::is_inline) CHECK(wakes == 1);
  }

  SUBCASE("a stream waits for what another one did before an event") {
    auto const queues = Rig::make();
    c10::Stream const stream(c10::Stream::DEFAULT, device);
    auto event = queues->record(stream);
    auto moved = std::move(event);
    queues->wait(stream, moved);
    if constexpr (requires { Rig::finish(); }) check_order<Rig>(*queues);
  }

  SUBCASE("there is one stream for each device, and tasks have them as their current ones") {
    auto const queues = Rig::make();
    std::span<c10::Stream const> const streams = queues->streams();
    for (std::size_t i = 0; i < streams.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) CHECK(streams[i].device() != streams[j].device());
    }
    Progress done;
    std::atomic<bool> all_current = true;
    for (int task = 0; task < 8; ++task) {
      queues->submit(device, {0, [&] {
                                for (auto const& stream : streams) {
                                  c10::impl::VirtualGuardImpl const guard(stream.device_type());
                                  all_current =
                                      all_current && guard.getStream(stream.device()) == stream;
                                }
                                done.step();
                              }});
    }
    REQUIRE(drive(*queues, done, 8));
    CHECK(all_current);
  }
}

}  // namespace distgrad::testing
