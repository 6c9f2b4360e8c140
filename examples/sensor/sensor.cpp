// How does a sensor without libtorch, exceptions and RTTI feed a model that is trained elsewhere?
#include <distgrad/raw/raw_worker.hpp>
#include <distgrad/transport/tcp_transport.hpp>

#include <cstdio>
#include <cstdlib>

namespace {

using distgrad::RawTensor;
using Sensor = distgrad::RawWorker<distgrad::TcpTransport>;

/// What the world looks like here: `count` points between -1 and 1.
std::vector<float> measure(int count) {
  static std::uint32_t state = 1;
  std::vector<float> points(std::size_t(2 * count));
  for (auto& coordinate : points) {
    state = state * 1664525 + 1013904223;
    coordinate = float(state >> 8) / float(1 << 23) - 1;
  }
  return points;
}
/// What the trainer shall find out.
float temperature_at(float x, float y) { return 2 * x - y + 0.5f; }

/// One step of training with `count` new samples. @return the loss before it.
distgrad::Result<float> teach(Sensor& sensor, int count) {
  auto points = measure(count);
  std::vector<float> temperatures;
  for (std::size_t i = 0; i < points.size(); i += 2) {
    temperatures.push_back(temperature_at(points[i], points[i + 1]));
  }
  return sensor.call<float(RawTensor, RawTensor)>(
      "trainer", "learn", RawTensor::of(std::move(points), {count, 2}),
      RawTensor::of(std::move(temperatures), {count}));
}

int fail(distgrad::ErrorReport const& error) {
  std::fprintf(stderr, "sensor: %s (%s)\n", error.text.c_str(), error.code.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Sensor::Options options;
  options.name = "sensor";
  options.rank = 1;
  options.world_size = 2;
  options.transport.bind_address = "127.0.0.1";
  if (argc > 1) options.master_port = static_cast<std::uint16_t>(std::atoi(argv[1]));
  auto const joined = Sensor::join(std::move(options));
  if (!joined) return fail(joined.error());
  auto& sensor = **joined;

  // The trainer asks first, which says that it is ready to be taught.
  bool is_wanted = false;
  sensor.define<RawTensor(int)>("measure", [&](int count) {
    is_wanted = true;
    return RawTensor::of(measure(count), {count, 2});
  });
  while (!is_wanted) sensor.poll(distgrad::time_point::max());

  for (int step = 0; step < 200; ++step) {
    auto const loss = teach(sensor, 16);
    if (!loss) return fail(loss.error());
    if (step % 100 == 0) std::printf("sensor: loss %.2f\n", double(*loss));
  }
  auto const predicted = sensor.call<RawTensor(RawTensor)>(
      "trainer", "predict", RawTensor::of<float>({1, 1, 3, 0}, {2, 2}));
  if (!predicted) return fail(predicted.error());
  auto const temperatures = predicted->as<float>();
  std::printf("sensor: predicted %.2f and %.2f\n", double(temperatures[0]),
              double(temperatures[1]));
  auto const ended = sensor.shutdown();
  return ended ? 0 : fail(ended.error());
}
