// A contestant: two processes of the benchmark's own program, a driver (rank 0, calls) and a peer
// (rank 1, answers), as the conductor sees them.
#pragma once

#include "../support/free_port.hpp"
#include "chunk.hpp"

#include <csignal>
#include <memory>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

extern char** environ;

namespace bench {

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

}  // namespace bench
