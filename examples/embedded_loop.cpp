// How does a controller with an event loop of its own, and no thread, take part in training?
#include <distgrad/distgrad.hpp>

#include <ATen/ops/ones.h>

#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

namespace {

using namespace std::chrono_literals;
using Controller = distgrad::DistEngine<distgrad::TcpTransport, distgrad::InlineQueues>;

/// What lives on the controller.
struct Filter {
  at::Tensor weight = at::ones({2, 1}).mul(0.5).set_requires_grad(true);
  int ticks = 0;
  bool is_trained = false;
};
Filter& filter() {
  static Filter one;
  return one;
}

// What the trainer calls there.
at::Tensor predict(at::Tensor const& x) { return x.mm(filter().weight); }  // [n, 2] -> [n, 1]
void learn(distgrad::ContextId context) {
  auto& weight = filter().weight;
  weight.data().sub_(distgrad::this_worker().context_part(context)->gradient(weight).mul(0.1));
}
void finish() { filter().is_trained = true; }

/// Another process, with threads: an ordinary engine.
void train(std::uint16_t port) {
  distgrad::TcpEngine engine({.name = "trainer", .rank = 1, .world_size = 2, .master_port = port});
  for (int step = 0; step < 4; ++step) {
    auto context = engine.context();
    auto const loss = engine.rpc_sync<predict>("controller", at::ones({4, 2})).sub(3).pow(2).mean();
    context.backward({loss});  // the controller runs its part inside poll()
    engine.rpc_sync<learn>("controller", context.id());
    std::printf("trainer: loss %.4f\n", loss.item<double>());
  }
  engine.rpc_sync<finish>("controller");
  engine.shutdown();
}

/// The controller's own loop: its timer, and whatever the engine waits for.
void run_loop(Controller& engine, int timer) {
  while (!filter().is_trained || filter().ticks == 0) {
    auto const result = engine.poll({.steps = 8, .time = 1ms});
    auto handles = engine.native_handles();
    handles.push_back({timer, POLLIN, 0});
    ::poll(handles.data(), handles.size(), result.timeout_ms());
    std::uint64_t ticks = 0;
    if (handles.back().revents != 0 && ::read(timer, &ticks, sizeof ticks) > 0) ++filter().ticks;
  }
}

int threads() {
  return int(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

}  // namespace

int main() {
  int pipe[2];
  if (::pipe(pipe) != 0) return 1;
  auto const trainer = ::fork();
  if (trainer == 0) {
    std::uint16_t port = 0;  // the one on which the controller waits
    if (::read(pipe[0], &port, sizeof port) != sizeof port) return 1;
    train(port);
    return 0;
  }
  int const timer = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  itimerspec const every_millisecond{{0, 1'000'000}, {0, 1'000'000}};
  ::timerfd_settime(timer, 0, &every_millisecond, nullptr);

  int const before = threads();
  distgrad::TcpRendezvous meeting({.on_listening = [&](std::uint16_t port) {
    if (::write(pipe[1], &port, sizeof port) != sizeof port) std::abort();
  }});
  Controller engine({.name = "controller", .rank = 0, .world_size = 2, .rendezvous = meeting});
  run_loop(engine, timer);
  int const started = threads() - before;
  engine.shutdown();
  int status = 1;
  ::waitpid(trainer, &status, 0);
  std::printf("controller: weight %.4f, %d threads started\n",
              filter().weight.mean().item<double>(), started);
  return status == 0 && started == 0 ? 0 : 1;
}

// Output:
// trainer: loss 4.0000
// trainer: loss 1.4400
// trainer: loss 0.5184
// trainer: loss 0.1866
// controller: weight 1.3704, 0 threads started
