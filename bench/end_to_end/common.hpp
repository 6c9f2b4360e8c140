// The harness of the end-to-end benchmarks: contestants (distgrad, libtorch's TensorPipe agent, a
// bare TCP echo) that take turns in one run, each in two processes of its own.
//
// The program runs itself again for every process: two per contestant, a *driver* (rank 0, calls)
// and a *peer* (rank 1, answers). The *conductor*, the process the user started, loads no agent and
// no engine; it tells one driver at a time to run a short chunk of calls and gets the chunk's
// median back. Contestants therefore share neither threads nor heap, and noise of the machine
// meets all of them alike.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char** environ;

namespace bench {

using Clock = std::chrono::steady_clock;

inline double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  std::size_t const middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

[[noreturn]] inline void fail(std::string const& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// Keeps freed memory in the process: without this, glibc gives big blocks back to the kernel after
/// every call, and the first touch of the next block costs more than sending it.
inline void keep_freed_memory() {
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest value that glibc accepts
  mallopt(M_TOP_PAD, 16 << 20);
}

/// A TCP port of 127.0.0.1 that the kernel just had free.
inline std::uint16_t free_port() {
  int const fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || ::bind(fd, raw, length) != 0 || ::getsockname(fd, raw, &length) != 0)
    fail("no free port on 127.0.0.1");
  ::close(fd);
  return ntohs(address.sin_port);
}

// --- what conductor and drivers say to each other ------------------------------------------------

inline constexpr int command_fd = 3;  // the conductor's end closed: the driver ends
inline constexpr int answer_fd = 4;

struct ChunkRequest {
  std::int32_t row = 0;
  std::int32_t warm_up_calls = 0;
  std::int32_t least_calls = 0;
  std::int32_t milliseconds = 0;
};

struct Answer {  // small enough for one atomic write to a pipe
  std::int32_t ok = 1;
  std::int32_t calls = 0;
  double median_us = 0;
  char text[240] = {};

  static Answer failed(char const* why) {
    Answer answer{.ok = 0};
    std::snprintf(answer.text, sizeof answer.text, "%s", why);
    return answer;
  }
};

/// @return false at the end of the stream; throws on an error or a partial record.
inline bool read_all(int fd, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  for (std::size_t done = 0; done < bytes;) {
    ssize_t const n = ::read(fd, at + done, bytes - done);
    if (n == 0 && done == 0) return false;
    if (n == 0) throw std::runtime_error("the other process ended in the middle of a message");
    if (n < 0 && errno != EINTR) fail("read");
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  return true;
}

inline void write_all(int fd, void const* data, std::size_t bytes) {
  auto const* at = static_cast<char const*>(data);
  for (std::size_t done = 0; done < bytes;) {
    ssize_t const n = ::write(fd, at + done, bytes - done);
    if (n < 0 && errno != EINTR) fail("write");
    if (n > 0) done += static_cast<std::size_t>(n);
  }
}

// --- in a driver ---------------------------------------------------------------------------------

/// One call that is measured.
using Call = std::function<void()>;

inline Answer run_chunk(Call const& call, ChunkRequest const& request) {
  for (int i = 0; i < request.warm_up_calls; ++i) call();
  std::vector<double> times;
  auto const start = Clock::now();
  while (microseconds_since(start) < request.milliseconds * 1e3 ||
         times.size() < static_cast<std::size_t>(request.least_calls)) {
    auto const begin = Clock::now();
    call();
    times.push_back(microseconds_since(begin));
  }
  return {.calls = static_cast<std::int32_t>(times.size()), .median_us = median(times)};
}

/// Says that the driver is ready, then runs chunks of `calls[row]` until the conductor is done.
inline void serve_chunks(std::vector<Call> const& calls) {
  Answer answer;
  write_all(answer_fd, &answer, sizeof answer);
  for (ChunkRequest request; read_all(command_fd, &request, sizeof request);) {
    try {
      answer = run_chunk(calls.at(static_cast<std::size_t>(request.row)), request);
    } catch (std::exception const& error) {
      answer = Answer::failed(error.what());
    }
    write_all(answer_fd, &answer, sizeof answer);
  }
}

/// Ends the call when its result is wrong: a fast wrong answer must not be measured.
inline void require(bool holds, char const* what) {
  if (!holds) throw std::runtime_error(std::string("wrong result: ") + what);
}

/// What one of the processes is.
struct Role {
  std::string contestant;
  int rank = 0;  // 0: driver, 1: peer
  std::uint16_t port = 0;
};

// --- in the conductor ----------------------------------------------------------------------------

class Child {
 public:
  explicit Child(Role const& role) {
    int down[2], up[2];
    pipe_above_answer_fd(down);
    pipe_above_answer_fd(up);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, down[0], command_fd);
    posix_spawn_file_actions_adddup2(&actions, up[1], answer_fd);
    std::vector<std::string> words = {"bench", role.contestant, std::to_string(role.rank),
                                      std::to_string(role.port), std::to_string(::getpid())};
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    errno = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    int const error = errno;
    posix_spawn_file_actions_destroy(&actions);
    ::close(down[0]);
    ::close(up[1]);
    command_ = down[1];
    answer_ = up[0];
    if ((errno = error) != 0) fail("cannot start " + role.contestant);
  }
  Child(Child const&) = delete;
  Child& operator=(Child const&) = delete;
  ~Child() {
    dismiss();
    if (!wait(std::chrono::seconds(10))) kill_now();
    ::close(answer_);
  }

  pid_t pid() const { return pid_; }

  void send(ChunkRequest const& request) { write_all(command_, &request, sizeof request); }

  /// The next answer, or why there is none.
  Answer receive(std::chrono::milliseconds timeout) {
    pollfd waiting{answer_, POLLIN, 0};
    int const ready = ::poll(&waiting, 1, static_cast<int>(timeout.count()));
    if (ready <= 0) return Answer::failed("no answer in time");
    Answer answer;
    if (!read_all(answer_, &answer, sizeof answer)) return Answer::failed("its process ended");
    return answer;
  }

  /// Tells the process to end; a driver takes its peer along.
  void dismiss() {
    if (command_ >= 0) ::close(command_);
    command_ = -1;
  }
  void kill_now() {
    if (reaped_) return;
    ::kill(pid_, SIGKILL);
    wait(std::chrono::seconds(10));
  }

 private:
  // Keeps the pipe's ends away from the two numbers that they get in the child.
  static void pipe_above_answer_fd(int (&ends)[2]) {
    int raw[2];
    if (::pipe2(raw, O_CLOEXEC) != 0) fail("pipe");
    for (int i = 0; i < 2; ++i) {
      ends[i] = ::fcntl(raw[i], F_DUPFD_CLOEXEC, 10);
      ::close(raw[i]);
      if (ends[i] < 0) fail("pipe");
    }
  }

  bool wait(std::chrono::milliseconds limit) {
    auto const end = Clock::now() + limit;
    while (!reaped_ && Clock::now() < end) {
      reaped_ = ::waitpid(pid_, nullptr, WNOHANG) != 0;
      if (!reaped_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return reaped_;
  }

  pid_t pid_ = -1;
  int command_ = -1, answer_ = -1;
  bool reaped_ = false;
};

/// A driver and its peer. After the first failure it takes no further part; `failure()` says why.
class Contestant {
 public:
  explicit Contestant(std::string name) : name_(std::move(name)) {
    std::uint16_t const port = free_port();
    driver_ = std::make_unique<Child>(Role{name_, 0, port});
    peer_ = std::make_unique<Child>(Role{name_, 1, port});
    check(driver_->receive(std::chrono::seconds(60)));
  }
  ~Contestant() {
    driver_->dismiss();
    driver_.reset();
    peer_.reset();
  }

  std::string const& name() const { return name_; }
  std::string const& failure() const { return failure_; }
  std::vector<pid_t> pids() const { return {driver_->pid(), peer_->pid()}; }

  /// Median of one chunk in microseconds.
  std::optional<double> chunk(ChunkRequest const& request) {
    if (!failure_.empty()) return std::nullopt;
    driver_->send(request);
    Answer const answer = driver_->receive(std::chrono::seconds(60));
    if (!check(answer)) return std::nullopt;
    return answer.median_us;
  }

 private:
  bool check(Answer const& answer) {
    if (answer.ok) return true;
    failure_ = answer.text;
    std::fprintf(stderr, "%s failed: %s\n", name_.c_str(), answer.text);
    driver_->kill_now();
    peer_->kill_now();
    return false;
  }

  std::string name_, failure_;
  std::unique_ptr<Child> driver_, peer_;
};

/// CPU time in microseconds: of the whole machine (10 ms resolution) and of some processes.
struct CpuUse {
  double machine = 0, ours = 0;
  Clock::time_point when = Clock::now();

  static double of(pid_t pid) {
    clockid_t clock;
    timespec used{};
    if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
    return static_cast<double>(used.tv_sec) * 1e6 + static_cast<double>(used.tv_nsec) / 1e3;
  }
  static CpuUse now(std::vector<pid_t> const& pids) {
    CpuUse use;
    double user = 0, nice = 0, system = 0, idle = 0, io_wait = 0, irq = 0, soft_irq = 0;
    if (std::FILE* file = std::fopen("/proc/stat", "re")) {
      if (std::fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle,
                      &io_wait, &irq, &soft_irq) == 7)
        use.machine = (user + nice + system + irq + soft_irq) * 1e6 /
                      static_cast<double>(::sysconf(_SC_CLK_TCK));
      std::fclose(file);
    }
    for (pid_t pid : pids) use.ours += of(pid);
    return use;
  }
  /// Share of the machine (0 to 1) that other processes used since `before`.
  double others_since(CpuUse const& before) const {
    double const wall = std::chrono::duration<double, std::micro>(when - before.when).count();
    double const others = (machine - before.machine) - (ours - before.ours);
    return std::max(0.0, others / (wall * static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN))));
  }
};

/// One line of the result: what is measured, and how far below libtorch it shall be.
struct Row {
  std::string label;        // for people: "4 B"
  std::string json_fields;  // for programs: "\"size_bytes\":4"
  double target_ratio = 0;  // distgrad / torch; 0: no target
};

/// A benchmark program: its rows, who takes part, and what their processes run.
struct Program {
  std::string name;
  std::vector<Row> rows;
  std::vector<std::string> contestants;         // the first is the one that the ratios are about
  std::string absent;                           // says who cannot take part, and why
  std::function<void(Role const&)> run_role;
  bool measure_idle = false;
};

/// distgrad first, the echo last, libtorch between them unless `why_torch_is_absent` has a reason.
inline void add_contestants(Program& program, std::string const& why_torch_is_absent) {
  program.contestants = {"distgrad", "torch", "echo"};
  if (why_torch_is_absent.empty()) return;
  program.contestants.erase(program.contestants.begin() + 1);
  program.absent = "no torch columns: " + why_torch_is_absent;
}

class Conductor {
 public:
  Conductor(Program const& program, bool quick) : program_(program), quick_(quick) {
    for (auto const& name : program.contestants)
      contestants_.push_back(std::make_unique<Contestant>(name));
    pids_.push_back(::getpid());
    for (auto const& one : contestants_)
      for (pid_t pid : one->pids()) pids_.push_back(pid);
  }

  /// @return false when a contestant failed.
  bool run() {
    if (!program_.absent.empty()) std::fprintf(stderr, "%s\n", program_.absent.c_str());
    if (program_.measure_idle) run_idle();
    for (std::size_t row = 0; row < program_.rows.size(); ++row) run_row(static_cast<int>(row));
    return std::all_of(contestants_.begin(), contestants_.end(),
                       [](auto const& one) { return one->failure().empty(); });
  }

 private:
  using Round = std::vector<std::optional<double>>;

  // A round is quiet when other processes used less than this share of the machine meanwhile. The
  // choice looks at others' CPU use only, never at the times.
  static constexpr double quiet_share = 0.12;

  Round play_round(int row, std::size_t first, int warm_up_calls) {
    ChunkRequest const request{row, warm_up_calls, 3, quick_ ? 20 : 50};
    Round round(contestants_.size());
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      std::size_t const turn = (first + i) % contestants_.size();  // nobody always goes first
      round[turn] = contestants_[turn]->chunk(request);
    }
    return round;
  }

  void run_row(int row) {
    int const wanted = quick_ ? 5 : 21;
    std::vector<Round> quiet, all;
    play_round(row, 0, quick_ ? 5 : 20);  // not counted: threads, caches and heaps warm up
    for (int i = 0; static_cast<int>(quiet.size()) < wanted && i < 3 * wanted; ++i) {
      auto const before = CpuUse::now(pids_);
      all.push_back(play_round(row, static_cast<std::size_t>(i), 2));
      if (CpuUse::now(pids_).others_since(before) < quiet_share) quiet.push_back(all.back());
    }
    bool const enough = static_cast<int>(quiet.size()) >= (wanted + 1) / 2;
    print(program_.rows[static_cast<std::size_t>(row)], enough ? quiet : all, enough);
  }

  void print(Row const& row, std::vector<Round> const& rounds, bool quiet) const {
    std::vector<double> us;
    std::string json = "{\"bench\":\"" + program_.name + "\"," + row.json_fields;
    std::string human = program_.name + ", " + row.label + ":";
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      std::vector<double> medians;
      for (auto const& round : rounds)
        if (round[i]) medians.push_back(*round[i]);
      bool const whole = contestants_[i]->failure().empty();
      us.push_back(whole ? median(medians) : std::nan(""));
      if (!whole) continue;
      json += ",\"" + contestants_[i]->name() + "_us\":" + number(us[i]);
      human += "  " + contestants_[i]->name() + " " + number(us[i]) + " us";
    }
    for (std::size_t i = 1; i < contestants_.size(); ++i) {
      double const ratio = us[0] / us[i];
      if (std::isnan(ratio)) continue;
      json += ",\"ratio_" + contestants_[i]->name() + "\":" + number(ratio);
      human += "  " + number(ratio) + "x " + contestants_[i]->name();
      if (contestants_[i]->name() == "torch" && row.target_ratio > 0)
        human += " (target <= " + number(row.target_ratio) + ": " +
                 (ratio <= row.target_ratio ? "met)" : "MISSED)");
    }
    json += ",\"rounds\":" + std::to_string(rounds.size()) + ",\"quiet\":" + (quiet ? "1}" : "0}");
    if (!quiet) human += "  [the machine was busy]";
    std::printf("%s\n", json.c_str());
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", human.c_str());
  }

  /// How much of a core the two idle processes of each contestant use.
  void run_idle() {
    constexpr double target_cores = 0.01;
    double const seconds = 3;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // what starting up left behind
    std::vector<double> before;
    auto const start = Clock::now();
    for (auto const& one : contestants_) before.push_back(used(*one));
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    std::string json = "{\"bench\":\"idle\",\"seconds\":" + number(seconds);
    std::string human = "idle, two processes each:";
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      double const share = (used(*contestants_[i]) - before[i]) / microseconds_since(start);
      if (!contestants_[i]->failure().empty()) continue;
      json += ",\"" + contestants_[i]->name() + "_cores\":" + number(share);
      human += "  " + contestants_[i]->name() + " " + number(share * 100) + " % of a core";
      if (contestants_[i]->name() == "distgrad")
        human += share < target_cores ? " (target < 1 %: met)" : " (target < 1 %: MISSED)";
    }
    std::printf("%s}\n", json.c_str());
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", human.c_str());
  }

  static double used(Contestant const& one) {
    double sum = 0;
    for (pid_t pid : one.pids()) sum += CpuUse::of(pid);
    return sum;
  }

  static std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", value);
    if (value >= 1000) std::snprintf(text, sizeof text, "%.0f", value);
    return text;
  }

  Program const& program_;
  bool quick_;
  std::vector<std::unique_ptr<Contestant>> contestants_;
  std::vector<pid_t> pids_;
};

// --- main ----------------------------------------------------------------------------------------

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
  ::setenv("OMP_NUM_THREADS", "1", 1);  // also for threads that libtorch starts in the children
  ::setenv("GLOG_minloglevel", "2", 0);  // its agent reports every normal shutdown
  try {
    return Conductor(program, quick).run() ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), error.what());
    return 1;
  }
}

}  // namespace bench
