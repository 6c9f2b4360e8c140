// `main` of an end-to-end benchmark: the conductor, or one of the processes it started.
#pragma once

#include "conductor.hpp"

#include <cstdlib>

#include <sys/prctl.h>

namespace bench {

/// In a process the conductor started: `argv` is {"bench", contestant, rank, port, conductor}.
[[noreturn]] inline void run_role(Program const& program, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != std::atoi(argv[4])) _exit(1);  // the conductor is gone already
  Role const role{argv[1], std::atoi(argv[2]), static_cast<std::uint16_t>(std::atoi(argv[3]))};
  int status = 0;
  try {
    program.run_role(role);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s, rank %d: %s\n", role.contestant.c_str(), role.rank, error.what());
    Answer const answer = Answer::failed(error.what());
    (void)!::write(answer_fd, &answer, sizeof answer);
    status = 1;
  }
  std::fflush(nullptr);
  _exit(status);  // no static destructors: libtorch's remaining threads still use its statics
}

inline bool run_all_rows(Program const& program, bool quick) {
  Targets targets;
  bool const whole = Conductor(program, quick, targets).run();
  if (program.own_rows) program.own_rows(quick, targets);
  targets.print();
  return whole;
}

/// The whole of `main`: `[--quick]` runs the benchmark.
inline int run_program(Program const& program, int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  keep_freed_memory();
  if (argc == 5 && std::string(argv[0]) == "bench") run_role(program, argv);
  bool const quick = argc == 2 && std::string(argv[1]) == "--quick";
  if (argc > 1 && !quick) {
    std::fprintf(stderr, "usage: %s [--quick]\n", argv[0]);
    return 2;
  }
  ::setenv("OMP_NUM_THREADS", "1", 1);   // also for threads that libtorch starts in the children
  ::setenv("GLOG_minloglevel", "2", 0);  // its agent reports every normal shutdown
  try {
    return run_all_rows(program, quick) ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), error.what());
    return 1;
  }
}

}  // namespace bench
