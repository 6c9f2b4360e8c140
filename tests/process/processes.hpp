#pragma once
// Real processes for tests: a test program starts itself again with a role and arguments, and
// looks after what it started. Every test file has a `main` that calls `processes::run`.

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <distgrad/distgrad.hpp>

// After distgrad: libtorch may include glog, whose CHECK would replace doctest's.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

namespace processes {

using namespace std::chrono_literals;
using Arguments = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;
/// What a started process does; returns its exit code.
using Role = int (*)(Arguments const&);

/// A process that this one started. Killed at the end, if it has not ended by then.
class Process {
 public:
  Process(std::string const& role, Arguments arguments, Environment const& more = {}) {
    arguments.insert(arguments.begin(), {"/proc/self/exe", "--role", role});
    std::vector<std::string> environment;
    for (char** entry = environ; *entry; ++entry) environment.push_back(*entry);
    for (auto const& [name, value] : more) environment.push_back(name + "=" + value);
    auto const error = ::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr,
                                     pointers(arguments).data(), pointers(environment).data());
    REQUIRE(error == 0);
    descriptor_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    REQUIRE(descriptor_ >= 0);
  }
  Process(Process&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  Process& operator=(Process&&) = delete;
  ~Process() {
    if (pid_ == 0) return;
    if (!status_) kill();
    ::close(descriptor_);
  }

  /// Ends it without a chance to say goodbye, and waits until it is gone.
  void kill() {
    ::kill(pid_, SIGKILL);
    (void)exit_code();
  }
  /// The exit code once it has ended by itself; 128 and the signal's number if it was ended; -1 if
  /// it has not ended in time.
  int exit_code(std::chrono::milliseconds bound = 60s) {
    if (!status_) {
      pollfd ended{descriptor_, POLLIN, 0};
      if (::poll(&ended, 1, static_cast<int>(bound.count())) != 1) return -1;
      int status = 0;
      if (::waitpid(pid_, &status, 0) != pid_) return -1;
      status_ = status;
    }
    return WIFEXITED(*status_) ? WEXITSTATUS(*status_) : 128 + WTERMSIG(*status_);
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (auto& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
  }

  pid_t pid_ = 0;
  int descriptor_ = -1;
  std::optional<int> status_;
};

inline distgrad::TcpEngine::Options options(int rank, int world_size) {
  distgrad::TcpEngine::Options options;
  options.rank = rank;
  options.world_size = world_size;
  options.transport.bind_address = "127.0.0.1";
  options.log = {};  // tests provoke errors on purpose
  return options;
}

/// A group whose rank 0 is this process; the others are started and run `role` with the arguments
/// rank, world size, port.
class Group {
 public:
  Group(int world_size, std::string const& role) {
    auto mine = options(0, world_size);
    mine.rendezvous = distgrad::TcpRendezvous(
        {.master_port = 0, .job_secret = {}, .bind_address = {}, .on_listening = [&](auto port) {
           for (int rank = 1; rank < world_size; ++rank) {
             members_.emplace_back(role, Arguments{std::to_string(rank), std::to_string(world_size),
                                                   std::to_string(port)});
           }
         }});
    engine_ = std::make_unique<distgrad::TcpEngine>(mine);
  }

  distgrad::TcpEngine& engine() { return *engine_; }
  /// The process of rank 1 or higher.
  Process& process(int rank) { return members_.at(std::size_t(rank - 1)); }

 private:
  std::vector<Process> members_;
  std::unique_ptr<distgrad::TcpEngine> engine_;
};

/// The options of a process that `Group` started.
inline distgrad::TcpEngine::Options member_options(Arguments const& arguments) {
  auto options = processes::options(std::stoi(arguments.at(0)), std::stoi(arguments.at(1)));
  options.master_port = static_cast<std::uint16_t>(std::stoi(arguments.at(2)));
  return options;
}

/// The role of most members: serves until the group ends.
inline int serve(Arguments const& arguments) {
  distgrad::TcpEngine engine(member_options(arguments));
  engine.shutdown();
  return 0;
}

/// To be returned by `main`: runs the tests, or the role this process was started for.
inline int run(int argc, char** argv, std::map<std::string, Role> const& roles) {
  if (argc < 3 || std::string(argv[1]) != "--role") return doctest::Context(argc, argv).run();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // no orphans when a test is ended from outside
  try {
    return roles.at(argv[2])(Arguments(argv + 3, argv + argc));
  } catch (std::exception const& error) {
    std::fprintf(stderr, "role %s: %s\n", argv[2], error.what());
    return 99;
  }
}

}  // namespace processes
