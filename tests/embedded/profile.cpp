// A program of the embedded profile: two processes, each an engine over TCP without a thread, that
// call one another and run a backward pass. It fails if an engine started a thread; what is in the
// binary, check_binary.cmake looks at.
#include <distgrad/engine/dist_engine.hpp>
#include <distgrad/queue/inline_queues.hpp>
#include <distgrad/rendezvous/tcp_rendezvous.hpp>
#include <distgrad/transport/tcp_transport.hpp>

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include <ATen/ops/ones.h>

namespace {

using Engine = distgrad::DistEngine<distgrad::TcpTransport, distgrad::InlineQueues>;

at::Tensor layer(at::Tensor const& x) { return x.mm(x).tanh(); }

int threads() {
  int count = -2;  // "." and ".."
  auto* const tasks = ::opendir("/proc/self/task");
  while (::readdir(tasks)) ++count;
  ::closedir(tasks);
  return count;
}

bool require(bool condition, char const* what) {
  if (!condition) std::fprintf(stderr, "process %d: %s\n", ::getpid(), what);
  return condition;
}

bool run(Engine::Options options) {
  layer(at::ones({2, 2}));  // what libtorch starts for itself, it starts here
  int const before = threads();
  Engine engine(std::move(options));
  bool ok = true;
  {
    auto context = engine.context();
    auto const x = at::ones({2, 2}).set_requires_grad(true);
    auto const y = engine.rpc_sync<layer>(1 - engine.rank(), x);
    context.backward({y.sum()});
    ok = require(context.gradient(x).defined(), "no gradient");
    auto const remote = engine.remote<layer>(1 - engine.rank(), x);
    ok = require(remote.to_here().equal(y), "another value") && ok;
  }
  ok = require(threads() == before, "the engine started a thread") && ok;
  engine.shutdown();
  return require(threads() == before, "the end of the engine started a thread") && ok;
}

}  // namespace

int main() {
  int pipe[2];
  if (::pipe(pipe) != 0) return 1;
  auto const other = ::fork();
  if (other == 0) {
    std::uint16_t port = 0;
    if (::read(pipe[0], &port, sizeof port) != sizeof port) return 1;
    return run({.rank = 1, .world_size = 2, .master_port = port}) ? 0 : 1;
  }
  distgrad::TcpRendezvous meeting({.on_listening = [&](std::uint16_t port) {
    if (::write(pipe[1], &port, sizeof port) != sizeof port) std::abort();
  }});
  bool const ok = run({.rank = 0, .world_size = 2, .rendezvous = meeting});
  int status = 1;
  ::waitpid(other, &status, 0);
  return ok && status == 0 ? 0 : 1;
}
