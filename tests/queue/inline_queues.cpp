#include <distgrad/queue/inline_queues.hpp>
//
#include <thread>

#include <doctest/doctest.h>

namespace inline_queues_tests {

namespace {

using distgrad::InlineQueues;
c10::Device const cpu(c10::DeviceType::CPU);

TEST_CASE("poll runs what was ready when it was called, on the calling thread") {
  InlineQueues queues;
  int runs = 0;
  auto const here = std::this_thread::get_id();
  queues.submit(cpu, {0, [&] {
                        ++runs;
                        CHECK(std::this_thread::get_id() == here);
                        queues.submit(cpu, {0, [&] { ++runs; }});
                      }});
  CHECK(runs == 0);
  CHECK(queues.poll() == 1);
  CHECK(runs == 1);
  CHECK(queues.poll() == 1);
  CHECK(runs == 2);
  CHECK(queues.poll() == 0);
}

TEST_CASE("a task that polls runs the others") {
  InlineQueues queues;
  int runs = 0;
  queues.submit(cpu, {1, [&] {
                        CHECK(queues.poll() == 2);
                        ++runs;
                      }});
  for (int i = 0; i < 2; ++i) queues.submit(cpu, {0, [&] { ++runs; }});
  CHECK(queues.poll() == 1);
  CHECK(runs == 3);
}

TEST_CASE("tasks left over when a task stops the queues do not run") {
  InlineQueues queues;
  int runs = 0;
  queues.submit(cpu, {1, [&] { queues.stop(); }});
  queues.submit(cpu, {0, [&] { ++runs; }});
  CHECK(queues.poll() == 1);
  CHECK(runs == 0);
}

}  // namespace

}  // namespace inline_queues_tests
