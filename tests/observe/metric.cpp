#include <distgrad/observe/metric.hpp>

#include <numeric>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

namespace metric_tests {

using namespace distgrad;
using namespace std::chrono_literals;

TEST_CASE("a duration falls into the first bucket that is long enough for it") {
  MetricHistogram histogram;
  for (std::size_t i = 0; i < MetricHistogram::bounds.size(); ++i) {
    histogram.observe(MetricHistogram::bounds[i]);
    histogram.observe(MetricHistogram::bounds[i] + 1ns);
  }
  auto const now = histogram.snapshot();
  CHECK(now.buckets.front() == 1);
  for (std::size_t i = 1; i < MetricHistogram::bounds.size(); ++i) CHECK(now.buckets[i] == 2);
  CHECK(now.buckets.back() == 1);  // longer than the longest
  CHECK(now.count == 2 * MetricHistogram::bounds.size());
  auto const all =
      std::accumulate(MetricHistogram::bounds.begin(), MetricHistogram::bounds.end(), 0ns);
  CHECK(now.sum == 2 * all + std::chrono::nanoseconds(MetricHistogram::bounds.size()));
}

TEST_CASE("bounds of a histogram grow") {
  for (std::size_t i = 1; i < MetricHistogram::bounds.size(); ++i) {
    CHECK(MetricHistogram::bounds[i - 1] < MetricHistogram::bounds[i]);
  }
}

TEST_CASE("nothing is lost when threads count at the same time") {
  MetricCounter counter;
  MetricGauge gauge;
  MetricHistogram histogram;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) {
        counter.add(2);
        gauge.add(i % 2 == 0 ? 1 : -1);
        histogram.observe(1ms);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(counter.value() == 80000);
  CHECK(gauge.value() == 0);
  CHECK(histogram.snapshot().count == 40000);
  CHECK(histogram.snapshot().sum == 40s);
}

}  // namespace metric_tests
