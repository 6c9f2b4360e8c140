// How is a model trained with what a sensor without libtorch measures? The sensor's side is in
// sensor.cpp. `trainer PROGRAM` starts it; without an argument, start it yourself with the port.
#include <distgrad/distgrad.hpp>

#include <ATen/ops/mse_loss.h>
#include <ATen/ops/zeros.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

struct Model {
  at::Tensor weight = at::zeros({2}).set_requires_grad(true);
  at::Tensor bias = at::zeros({1}).set_requires_grad(true);
  int samples = 0;
};
Model& model() {
  static Model one;
  return one;
}

// What the sensor calls.
at::Tensor predict(at::Tensor const& points) {  // [n, 2] -> [n]
  return points.mv(model().weight).add(model().bias);
}
float learn(at::Tensor const& points, at::Tensor const& temperatures) {
  auto const loss = at::mse_loss(predict(points), temperatures);
  loss.backward();
  for (auto* const parameter : {&model().weight, &model().bias}) {
    parameter->data().sub_(parameter->grad().mul(0.2));
    parameter->mutable_grad().reset();
  }
  model().samples += static_cast<int>(points.size(0));
  return loss.item<float>();
}
// What it calls there; only the types are known here.
at::Tensor measure(int) { std::abort(); }

}  // namespace

int main(int, char** argv) {
  pid_t sensor = 0;
  distgrad::TcpRendezvous::Options meeting;
  if (argv[1]) {
    meeting.on_listening = [&](std::uint16_t port) {
      auto const text = std::to_string(port);
      sensor = ::fork();
      if (sensor == 0) ::_exit(::execl(argv[1], argv[1], text.c_str(), nullptr));
    };
  } else {
    meeting.master_port = 29500;
  }
  distgrad::TcpEngine::Options options{.name = "trainer", .world_size = 2};
  options.rendezvous = distgrad::TcpRendezvous(meeting);
  options.transport.bind_address = "127.0.0.1";
  distgrad::TcpEngine engine(std::move(options));
  engine.define<"learn", &learn>();
  engine.define<"predict", &predict>();
  engine.define<"measure", &measure>();

  auto const points = engine.rpc_sync<measure>("sensor", 3);
  engine.shutdown();  // returns when the sensor is done
  if (argv[1]) ::waitpid(sensor, nullptr, 0);

  std::printf("trainer: asked for %d points, was taught %d\n", int(points.size(0)),
              model().samples);
  std::printf("trainer: weight %.2f %.2f, bias %.2f\n", model().weight[0].item<double>(),
              model().weight[1].item<double>(), model().bias.item<double>());
}
// Output:
// sensor: loss 1.80
// sensor: loss 0.00
// sensor: predicted 1.50 and 6.50
// trainer: asked for 3 points, was taught 3200
// trainer: weight 2.00 -1.00, bias 0.50
