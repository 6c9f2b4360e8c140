// What one profile of the library costs while it runs: a program of two processes, of which the
// first measures itself. The conductor, footprint.cpp, traces it and counts its system calls.
#pragma once

#include <distgrad/engine/dist_engine.hpp>
#include <distgrad/rendezvous/tcp_rendezvous.hpp>
#include <distgrad/transport/tcp_transport.hpp>

#include <dirent.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <ATen/ops/ones.h>

namespace footprint {

constexpr int rounds = 1000;

/// Tells the conductor that a part begins, or ends (0): a system call that nobody else makes.
inline void mark(long part) { ::syscall(SYS_write, -1, nullptr, part); }
enum Part : long { polls = 0x1001, calls = 0x1002 };

inline at::Tensor layer(at::Tensor const& x) { return x.mm(x); }
inline int add_one(int x) { return x + 1; }

inline int threads() {
  int count = -2;  // "." and ".."
  auto* const tasks = ::opendir("/proc/self/task");
  while (::readdir(tasks)) ++count;
  ::closedir(tasks);
  return count;
}

inline std::size_t heap_bytes() {
  auto const info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

template <class Engine>
void measure(Engine& engine) {
  if constexpr (requires { engine.poll(); }) {
    while (engine.poll().steps != 0) {
    }
    mark(polls);
    for (int i = 0; i < rounds; ++i) engine.poll();
    mark(0);
  }
  mark(calls);
  for (int i = 0; i < rounds; ++i) engine.template rpc_sync<add_one>(1, i);
  mark(0);
}

/// Rank 0 measures and prints; rank 1 serves.
template <class Engine>
void run(typename Engine::Options options) {
  layer(at::ones({2, 2}).set_requires_grad(true)).sum().backward();  // what libtorch needs itself
  auto const heap = heap_bytes();
  int const before = threads();
  Engine engine(std::move(options));
  if (engine.rank() == 0) {
    engine.template rpc_sync<add_one>(1, 0);
    auto const after = heap_bytes();
    std::printf("\"heap_bytes\":%zu,\"threads\":%d", after - heap, threads() - before);
    measure(engine);
  }
  engine.shutdown();
}

/// The whole of `main`.
template <class Engine>
int run_profile() {
  int pipe[2];
  if (::pipe(pipe) != 0) return 1;
  auto const other = ::fork();
  if (other == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::uint16_t port = 0;
    if (::read(pipe[0], &port, sizeof port) != sizeof port) return 1;
    run<Engine>({.rank = 1, .world_size = 2, .master_port = port});
    return 0;
  }
  distgrad::TcpRendezvous meeting({.on_listening = [&](std::uint16_t port) {
    if (::write(pipe[1], &port, sizeof port) != sizeof port) std::abort();
  }});
  run<Engine>({.rank = 0, .world_size = 2, .rendezvous = meeting});
  int status = 1;
  ::waitpid(other, &status, 0);
  return status;
}

}  // namespace footprint
