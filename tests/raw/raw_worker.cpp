#include <distgrad/raw/raw_worker.hpp>
//
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <distgrad/transport/serial_transport.hpp>

#include <doctest/doctest.h>

#include "../transport/noisy_terminals.hpp"

namespace raw_worker_tests {

namespace {
namespace raw_worker {

using namespace distgrad;
using namespace std::chrono_literals;
using Worker = RawWorker<SerialTransport>;

std::unique_ptr<Worker> join(noise::Terminals& line, int rank) {
  Worker::Options options;
  options.name = rank == 0 ? "zero" : "one";
  options.rank = rank;
  options.world_size = 2;
  options.group = {{{"zero", {0}, {}}, "serial"}, {{"one", {1}, {}}, "serial"}};
  options.transport.lines.push_back(
      {.peer = {std::uint32_t(1 - rank)}, .descriptor = line.take_end(rank)});
  auto joined = Worker::join(std::move(options));
  REQUIRE(joined.has_value());
  return std::move(*joined);
}

TEST_CASE("raw workers call one another over a noisy line, and end together") {
  noise::Terminals line(1, {.flipped_bit = 0.0005, .lost = 0.0005, .garbage = 0.0005});
  auto const zero = join(line, 0), one = join(line, 1);
  one->define<RawTensor(RawTensor, float)>("scale", [](RawTensor const& x, float by) {
    auto const values = x.as<float>();
    std::vector<float> scaled(values.begin(), values.end());
    for (auto& value : scaled) value *= by;
    return RawTensor::of(std::move(scaled), x.sizes);
  });
  one->define<void()>("fail", []() -> Result<void> {
    return ErrorReport{errc::internal, "out of ink"};
  });
  one->define<RawTensor()>("broken", [] { return RawTensor::of<float>({1, 2}, {3}); });
  auto serving = std::async(std::launch::async, [&] { return one->shutdown(60s).has_value(); });

  std::vector<float> values(500);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(i);
  auto const scaled =
      zero->call<RawTensor(RawTensor, float)>("one", "scale", RawTensor::of(values, {5, 100}), 2);
  REQUIRE(scaled.has_value());
  CHECK(scaled->sizes == std::vector<std::int64_t>{5, 100});
  for (auto& value : values) value *= 2;
  CHECK(std::vector<float>(scaled->as<float>().begin(), scaled->as<float>().end()) == values);
  CHECK(scaled->as<double>().empty());
  CHECK(zero->call<void()>("one", "fail").error().text == "on worker 'one' in 'fail': out of ink");
  CHECK(zero->call<RawTensor()>("one", "broken").error().code == errc::internal);
  CHECK(zero->call<float()>("one", "broken").error().code == errc::signature_mismatch);
  CHECK(zero->shutdown(60s).has_value());
  CHECK(serving.get());
  CHECK(zero->call<void()>("one", "fail").error().code == errc::closed);
}

TEST_CASE("a list that does not name the worker is an error") {
  Worker::Options options;
  options.name = "two";
  options.world_size = 1;
  options.group = {{{"zero", {0}, {}}, "serial"}};
  CHECK(Worker::join(options).error().code == errc::invalid_argument);
  options.name = "zero";
  options.world_size = 2;
  CHECK(Worker::join(options).error().code == errc::world_size_mismatch);
}

}  // namespace raw_worker
}  // namespace

}  // namespace raw_worker_tests
