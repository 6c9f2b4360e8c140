#include <distgrad/queue/cpu_queues.hpp>
//
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include <doctest/doctest.h>

#include <distgrad/core/blocking.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/testing/queue_conformance.hpp>

namespace cpu_queues_tests {

namespace {

using distgrad::CpuQueues;
using distgrad::testing::Progress;
c10::Device const cpu(c10::DeviceType::CPU);

TEST_CASE("a pool refuses options it cannot work with") {
  for (auto const& bad : {CpuQueues::Options{.threads = 0}, {.threads = 3, .max_threads = 2}}) {
    try {
      CpuQueues const queues(bad);
      FAIL("accepted");
    } catch (distgrad::Error const& e) {
      CHECK(e.code() == distgrad::errc::invalid_argument);
      CHECK(e.text().find("threads") != std::string::npos);
    }
  }
}

TEST_CASE("a pool refuses work for another device and says for which") {
  CpuQueues queues;
  try {
    queues.submit(c10::Device(c10::DeviceType::CUDA, 1), {0, [] {}});
    FAIL("accepted");
  } catch (distgrad::Error const& e) {
    CHECK(e.code() == distgrad::errc::not_supported);
    CHECK(e.text().find("cuda:1") != std::string::npos);
  }
}

TEST_CASE("a pool runs as many tasks at a time as it has threads, and no more") {
  CpuQueues queues({.threads = 3});
  Progress started, go, done;
  std::atomic<int> running = 0, most = 0;
  for (int i = 0; i < 12; ++i) {
    queues.submit(cpu, {0, [&] {
                          int const now = ++running;
                          int seen = most;
                          while (seen < now && !most.compare_exchange_weak(seen, now)) {
                          }
                          started.step();
                          go.await(1);
                          --running;
                          done.step();
                        }});
  }
  REQUIRE(started.await(3));  // all three threads are there
  go.step();
  CHECK(done.await(12));
  CHECK(most == 3);
}

TEST_CASE("threads are only started when there is work for them") {
  CpuQueues queues({.threads = 64});
  CHECK(queues.thread_count() == 1);
  Progress done;
  for (int i = 1; i <= 50; ++i) {
    queues.submit(cpu, {0, [&] { done.step(); }});
    REQUIRE(done.await(i));
  }
  CHECK(queues.thread_count() <= 3);  // the first may be late to become idle again
}

TEST_CASE("a thread that waits is replaced, and one that goes on is not kept back") {
  CpuQueues queues({.threads = 1});
  Progress first_waits, second_runs, finish, done;
  queues.submit(cpu, {0, [&] {
                        distgrad::BlockingRegion const region;
                        first_waits.step();
                        finish.await(1);
                        done.step();
                      }});
  REQUIRE(first_waits.await(1));
  queues.submit(cpu, {0, [&] {
                        second_runs.step();
                        // Busy, not blocked: the first task must be able to end all the same.
                        done.await(1);
                        done.step();
                      }});
  REQUIRE(second_runs.await(1));
  CHECK(queues.thread_count() == 2);
  finish.step();
  CHECK(done.await(2));
}

TEST_CASE("a region inside a region does not count twice") {
  CpuQueues queues({.threads = 1, .max_threads = 2});
  Progress done;
  queues.submit(cpu, {0, [&] {
                        distgrad::BlockingRegion const outer;
                        distgrad::BlockingRegion const inner;
                        done.step();
                      }});
  CHECK(done.await(1));
  queues.submit(cpu, {0, [&] { done.step(); }});
  CHECK(done.await(2));
}

TEST_CASE("a region on a thread outside every pool does nothing") {
  distgrad::BlockingRegion const region;
  distgrad::BlockingRegion const another;
}

TEST_CASE("when every thread waits, one more wait is an error with advice, and the pool goes on") {
  CpuQueues queues({.threads = 1, .max_threads = 3});
  Progress waiting, finish, done;
  for (int i = 0; i < 2; ++i) {
    queues.submit(cpu, {0, [&] {
                          distgrad::BlockingRegion const region;
                          waiting.step();
                          finish.await(1);
                          done.step();
                        }});
  }
  REQUIRE(waiting.await(2));
  std::string text;
  distgrad::error_code code;
  queues.submit(cpu, {0, [&] {
                        try {
                          distgrad::BlockingRegion const region;
                        } catch (distgrad::Error const& e) {
                          code = e.code();
                          text = e.text();
                        }
                        // Having thrown, it does not count as waiting.
                        try {
                          distgrad::BlockingRegion const region;
                        } catch (distgrad::Error const&) {
                          done.step();
                        }
                      }});
  REQUIRE(done.await(1));
  CHECK(code == distgrad::errc::pool_exhausted);
  CHECK(text.find("max_threads") != std::string::npos);
  CHECK(text.find("all 3 threads") != std::string::npos);
  queues.submit(cpu, {0, [&] { done.step(); }});
  CHECK(done.await(2));
  finish.step();
  CHECK(done.await(4));
}

TEST_CASE("threads that replaced waiting ones leave again") {
  CpuQueues queues({.threads = 1, .spare_thread_timeout = std::chrono::milliseconds(1)});
  Progress done;
  distgrad::testing::nest(queues, cpu, 30, done);
  REQUIRE(done.await(1));
  auto const give_up = std::chrono::steady_clock::now() + distgrad::testing::queue_patience;
  while (queues.thread_count() > 1 && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::yield();
  }
  CHECK(queues.thread_count() == 1);
  queues.submit(cpu, {0, [&] { done.step(); }});
  CHECK(done.await(2));
}

TEST_CASE("a task may destroy the queues it runs on") {
  auto queues = std::make_unique<CpuQueues>(CpuQueues::Options{.threads = 2});
  Progress go, done;
  queues->submit(cpu, {0, [&] {
                         go.await(1);
                         queues.reset();
                         done.step();
                       }});
  go.step();
  CHECK(done.await(1));
}

TEST_CASE("two tasks may stop the queues at the same time") {
  CpuQueues queues({.threads = 2});
  Progress ready, done;
  for (int i = 0; i < 2; ++i) {
    queues.submit(cpu, {0, [&] {
                          ready.step();
                          ready.await(2);
                          queues.stop();
                          done.step();
                        }});
  }
  CHECK(done.await(2));
}

TEST_CASE("a task that waits while the queues are stopped can finish") {
  CpuQueues queues({.threads = 1, .max_threads = 1});
  Progress started, finish;
  std::atomic<bool> ended = false;
  queues.submit(cpu, {0, [&] {
                        started.step();
                        finish.await(1);
                        distgrad::BlockingRegion const region;  // nobody needs a thread any more
                        ended = true;
                      }});
  REQUIRE(started.await(1));
  std::thread stopper([&] { queues.stop(); });
  // The region must be entered after the stop: the pool then drops what is submitted.
  auto token = std::make_shared<int>();
  do {
    queues.submit(cpu, {0, [token] {}});
  } while (token.use_count() > 1 && (token = std::make_shared<int>()));
  finish.step();
  stopper.join();
  CHECK(ended);
}

TEST_CASE("tasks from many threads with waits in between all run") {
  CpuQueues queues({.threads = 2, .spare_thread_timeout = std::chrono::milliseconds(0)});
  Progress done;
  std::vector<std::thread> submitters;
  for (int t = 0; t < 4; ++t) {
    submitters.emplace_back([&] {
      for (int i = 0; i < 50; ++i) distgrad::testing::nest(queues, cpu, 3, done);
    });
  }
  for (auto& thread : submitters) thread.join();
  CHECK(done.await(200));
}

}  // namespace

}  // namespace cpu_queues_tests
