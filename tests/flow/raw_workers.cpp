// Raw workers, which have no libtorch, in a group with engines.
#include "rig.hpp"

#include <future>

#include <ATen/ops/arange.h>

#include <distgrad/raw/raw_worker.hpp>

namespace raw_workers_tests {

namespace {
namespace raw_workers {

using namespace std::chrono_literals;
using distgrad::condition;
using distgrad::errc;
using distgrad::ErrorReport;
using distgrad::RawTensor;
using distgrad::Result;
using Engine = rig::TcpEngine;
using Sensor = distgrad::RawWorker<distgrad::TcpTransport>;

// Functions of the engine.
at::Tensor scale(at::Tensor const& x, double by) { return x.mul(by); }
std::tuple<std::string, int> describe(std::vector<at::Tensor> const& tensors, bool is_loud) {
  return {is_loud ? "TENSORS" : "tensors", static_cast<int>(tensors.size())};
}
void forget(std::string const&) {}
at::Tensor fail(at::Tensor const&) { throw std::runtime_error("the model is not there yet"); }
at::Tensor wait_for_ever(at::Tensor const& x) {
  while (distgrad::this_worker().is_running()) std::this_thread::yield();
  throw std::runtime_error("the worker stops before there is an answer for " + x.toString());
}

// Functions of the sensor, of which an engine knows the types.
at::Tensor measure(int) { return {}; }
at::Tensor calibrate(at::Tensor const& x) { return x; }
int ask_back(int) { return 0; }

/// An engine of rank 0 on threads of its own, and a raw worker of rank 1 on this one.
struct Pair {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Sensor> sensor;

  Pair() {
    std::promise<std::uint16_t> port;
    std::thread starter([&] { start_engine(port); });
    Sensor::Options options;
    options.name = "sensor";
    options.rank = 1;
    options.world_size = 2;
    options.master_port = port.get_future().get();
    options.job_secret = "secret";
    options.transport.bind_address = "127.0.0.1";
    auto joined = Sensor::join(std::move(options));
    starter.join();
    REQUIRE(joined.has_value());
    sensor = std::move(*joined);
  }

  void start_engine(std::promise<std::uint16_t>& port) {
    auto options = rig::options<Engine>();
    options.name = "trainer";
    options.world_size = 2;
    options.job_secret = "secret";
    options.rendezvous = distgrad::TcpRendezvous(
        {.job_secret = "secret", .on_listening = [&](auto p) { port.set_value(p); }});
    engine = std::make_unique<Engine>(std::move(options));
    engine->define<"scale", &scale>();
    engine->define<"describe", &describe>();
    engine->define<"forget", &forget>();
    engine->define<"fail", &fail>();
    engine->define<"wait_for_ever", &wait_for_ever>();
    engine->define<"measure", &measure>();
    engine->define<"calibrate", &calibrate>();
    engine->define<"ask_back", &ask_back>();
  }
  /// Runs `work` on another thread while the sensor serves.
  template <class Work>
  void serve_while(Work work) {
    std::atomic<bool> is_done{false};
    std::thread worker([&] {
      work();
      is_done = true;
    });
    while (!is_done) sensor->poll(distgrad::Clock::now() + 10ms);
    worker.join();
  }
};

RawTensor numbers(std::vector<float> values) {
  auto const size = static_cast<std::int64_t>(values.size());
  return RawTensor::of(std::move(values), {size});
}
std::vector<float> values_of(RawTensor const& tensor) {
  auto const values = tensor.as<float>();
  return {values.begin(), values.end()};
}

}  // namespace raw_workers
}  // namespace

using namespace raw_workers;

TEST_CASE("a raw worker calls an engine's functions") {
  Pair pair;
  auto& sensor = *pair.sensor;
  auto const scaled =
      sensor.call<RawTensor(RawTensor, double)>("trainer", "scale", numbers({1, 2, 3}), 0.5);
  REQUIRE(scaled.has_value());
  CHECK(values_of(*scaled) == std::vector<float>{0.5, 1, 1.5});
  auto const described = sensor.call<std::tuple<std::string, int>(std::vector<RawTensor>, bool)>(
      0, "describe", std::vector<RawTensor>{numbers({1}), numbers({})}, true);
  REQUIRE(described.has_value());
  CHECK(*described == std::tuple<std::string, int>("TENSORS", 2));
  CHECK(sensor.call<void(std::string)>("trainer", "forget", "all of it").has_value());
  CHECK(sensor.pending_calls() == 0);
}

TEST_CASE("a raw worker's errors are values that name worker and function") {
  Pair pair;
  auto& sensor = *pair.sensor;
  using OfTensor = RawTensor(RawTensor);
  auto const error = [](auto const& result) {
    REQUIRE_FALSE(result.has_value());
    CAPTURE(result.error().text);
    return result.error();
  };
  auto const thrown = error(sensor.call<OfTensor>("trainer", "fail", numbers({1})));
  CHECK(thrown.code == errc::remote_exception);
  CHECK(thrown.text == "on worker 'trainer' in 'fail': the model is not there yet");
  CHECK(error(sensor.call<OfTensor>("trainer", "scal", numbers({1}))).text.find("near: 'scale'") !=
        std::string::npos);
  CHECK(error(sensor.call<OfTensor>("trainer", "scale", numbers({1}))).code ==
        errc::signature_mismatch);
  CHECK(error(sensor.call<OfTensor>("trainer", "fail", RawTensor::of<float>({1, 2}, {3}))).code ==
        errc::invalid_argument);
  auto const late = error(
      sensor.call<OfTensor>(distgrad::within(50ms, "trainer"), "wait_for_ever", numbers({1})));
  CHECK(late.code == errc::timeout);
  CHECK(late.text.find("'wait_for_ever' on worker 'trainer'") != std::string::npos);

  std::optional<Result<RawTensor>> waiting;
  sensor.async_call<OfTensor>("trainer", "wait_for_ever", numbers({1}),
                              [&](Result<RawTensor> result) { waiting.emplace(result); });
  pair.engine.reset();
  REQUIRE(rig::eventually([&] {
    sensor.poll();
    return waiting.has_value();
  }));
  CHECK(error(*waiting).text.find("'trainer'") != std::string::npos);
  CHECK(sensor.call<OfTensor>("trainer", "fail", numbers({1})).has_error());
}

TEST_CASE("an engine calls a raw worker's functions, and differentiates around them") {
  Pair pair;
  auto& sensor = *pair.sensor;
  sensor.define<RawTensor(int)>("measure", [](int count) {
    std::vector<float> values;
    for (int i = 0; i < count; ++i) values.push_back(0.5f * float(i));
    return numbers(std::move(values));
  });
  sensor.define<RawTensor(RawTensor)>("calibrate", [](RawTensor const& x) -> Result<RawTensor> {
    if (x.as<float>().empty()) return ErrorReport{errc::invalid_argument, "no floats"};
    return x;
  });
  sensor.define<int(int)>("ask_back", [&](int by) -> Result<int> {
    auto const scaled =
        sensor.call<RawTensor(RawTensor, double)>("trainer", "scale", numbers({2}), double(by));
    if (!scaled) return scaled.error();
    return int(scaled->as<float>()[0]);
  });
  pair.serve_while([&] {
    auto& engine = *pair.engine;
    CHECK(engine.rpc_sync<ask_back>("sensor", 21) == 42);
    CHECK(rig::text_of([&] {
            engine.rpc_sync<calibrate>("sensor", at::arange(3, at::kDouble));
          }).find("no floats") != std::string::npos);
    for (bool const fast : {false, true}) {
      auto const weight = at::arange(4, at::kFloat).set_requires_grad(true);
      auto context = engine.context();
      auto const samples = engine.rpc_sync<measure>("sensor", 4);
      CHECK_FALSE(samples.requires_grad());
      auto const local = engine.rpc_sync<scale>("trainer", weight, 3.0);
      context.backward({local.mul(samples).sum()}, {.mode = fast ? distgrad::BackwardMode::fast
                                                                 : distgrad::BackwardMode::smart});
      CHECK(context.gradient(weight).equal(at::arange(4, at::kFloat).mul(1.5)));
      CHECK(rig::error_of([&] { engine.rpc_sync<calibrate>("sensor", weight); }) ==
            errc::not_supported);
    }
  });
}

TEST_CASE("a group with a raw worker ends together") {
  Pair pair;
  std::future<void> other;
  CHECK(pair.sensor->shutdown(50ms).error().code == errc::timeout);
  other = std::async(std::launch::async, [&] { pair.engine->shutdown(60s); });
  CHECK(pair.sensor->shutdown(60s).has_value());
  CHECK_NOTHROW(other.get());
}

TEST_CASE("a raw worker that cannot join says why") {
  Sensor::Options options;
  options.rank = 2;
  options.world_size = 2;
  CHECK(Sensor::join(options).error().code == errc::invalid_argument);
  options.rank = 1;
  options.master_port = 1;  // nobody listens there
  options.rendezvous_timeout = 100ms;
  auto const joined = Sensor::join(options);
  CHECK(joined.error().code == errc::unreachable);
  CHECK(joined.error().text.find("127.0.0.1:1") != std::string::npos);
}

}  // namespace raw_workers_tests
