// How each program of footprint measures itself. It consists of two processes, of which the first
// measures; the conductor, footprint.cpp, traces that one and is told where each part begins.
#pragma once

#include <dirent.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace footprint {

constexpr int rounds = 1000;

/// Whose system calls are counted: polls with nothing to do, calls that wait for their answers.
enum Part : long { none = 0, polls = 0x1001, calls = 0x1002 };

/// Tells the conductor that a part begins: a system call that nobody else makes.
inline void mark(Part part) { ::syscall(SYS_write, -1, nullptr, part); }

template <class Round>
void count_calls_of(Part part, Round round) {
  mark(part);
  for (int i = 0; i < rounds; ++i) round(i);
  mark(none);
}

inline int threads() {
  int count = -2;  // "." and ".."
  auto* const tasks = ::opendir("/proc/self/task");
  while (::readdir(tasks)) ++count;
  ::closedir(tasks);
  return count;
}

/// What is allocated now, in the heaps of all threads.
inline std::size_t heap_bytes() {
  auto const info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

/// Memory that no file backs: heaps, stacks, and what the loader wrote into libraries.
inline std::size_t anonymous_bytes() {
  auto* const file = std::fopen("/proc/self/smaps_rollup", "re");
  std::size_t kilobytes = 0;
  for (char line[256]; file && std::fgets(line, sizeof line, file);) {
    if (std::sscanf(line, "Anonymous: %zu kB", &kilobytes) == 1) break;
  }
  if (file) std::fclose(file);
  return kilobytes * 1024;
}

/// What there was before the library did anything.
struct Before {
  std::size_t heap = heap_bytes();
  int threads = footprint::threads();
};

/// Tells the conductor what there is now.
inline void print_start(Before const& before) {
  auto const heap = heap_bytes();  // first: the others take some
  std::printf("%zu %d %zu", heap - before.heap, threads() - before.threads, anonymous_bytes());
  std::fflush(stdout);
}

/// The whole of `main`: `run(rank, port)` in two processes. @param run returns whether it worked.
template <class Run>
int run_both(char const* port_text, Run run) {
  auto const port = static_cast<std::uint16_t>(std::atoi(port_text));
  auto const other = ::fork();
  if (other == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return run(1, port) ? 0 : 1;
  }
  bool const worked = run(0, port);
  int status = 1;
  ::waitpid(other, &status, 0);
  return worked && status == 0 ? 0 : 1;
}

}  // namespace footprint
