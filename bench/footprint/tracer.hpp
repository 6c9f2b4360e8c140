// Runs a program and counts the system calls of all its threads, part by part.
#pragma once

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <stdexcept>
#include <string>

namespace footprint {

struct Trace {
  /// What it wrote to standard output.
  std::string output;
  int status = 0;
  /// System calls of each part of `measure.hpp`.
  std::map<long, long> calls;
};

class Tracer {
 public:
  /// @throws std::runtime_error when the system does not allow it.
  Trace run(std::string const& path, std::string const& argument) {
    int pipe[2];
    if (::pipe(pipe) != 0) throw std::runtime_error("no pipe");
    main_ = ::fork();
    if (main_ == 0) start(path, argument, pipe);
    ::close(pipe[1]);
    follow();
    char bytes[4096];
    for (ssize_t got; (got = ::read(pipe[0], bytes, sizeof bytes)) > 0;) {
      trace_.output.append(bytes, static_cast<std::size_t>(got));
    }
    ::close(pipe[0]);
    return trace_;
  }

 private:
  [[noreturn]] static void start(std::string const& path, std::string const& argument,
                                 int const (&pipe)[2]) {
    ::dup2(pipe[1], STDOUT_FILENO);
    ::close(pipe[0]);
    ::close(pipe[1]);
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0) {
      ::execl(path.c_str(), path.c_str(), argument.c_str(), static_cast<char*>(nullptr));
    }
    ::_exit(126);
  }

  /// Until the program has ended.
  void follow() {
    int status = 0;
    ::waitpid(main_, &status, 0);
    if (!WIFSTOPPED(status)) throw std::runtime_error("ptrace is not allowed here");
    // Threads are followed, the other process is not: it is a fork, no clone.
    auto const options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
    ::ptrace(PTRACE_SETOPTIONS, main_, nullptr, options);
    ::ptrace(PTRACE_SYSCALL, main_, nullptr, nullptr);
    for (;;) {
      auto const thread = ::waitpid(-1, &status, __WALL);
      if (thread < 0) return;
      if (thread == main_ && !WIFSTOPPED(status)) {
        trace_.status = status;
        return;
      }
      if (WIFSTOPPED(status)) go_on(thread, status);
    }
  }

  void go_on(pid_t thread, int status) {
    auto const signal = WSTOPSIG(status);
    bool const is_call = signal == (SIGTRAP | 0x80);
    if (is_call) count(thread);
    // A new thread begins with a stop, and an event comes as a trap: neither is for the program.
    bool const is_ours = is_call || signal == SIGTRAP || signal == SIGSTOP;
    ::ptrace(PTRACE_SYSCALL, thread, nullptr, is_ours ? 0L : static_cast<long>(signal));
  }

  void count(pid_t thread) {
    __ptrace_syscall_info info{};
    ::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return;
    bool const is_mark = info.entry.nr == SYS_write && int(info.entry.args[0]) == -1;
    if (is_mark) {
      part_ = static_cast<long>(info.entry.args[2]);
    } else if (part_ != 0) {
      ++trace_.calls[part_];
    }
  }

  pid_t main_ = -1;
  long part_ = 0;
  Trace trace_;
};

}  // namespace footprint
