// Rounds: contestants take turns in every one, so that the machine's noise meets all of them alike,
// and rounds in which others used the machine are played again.
#pragma once

#include "timing.hpp"

#include <cstdio>

#include <sys/types.h>
#include <time.h>
#include <unistd.h>

namespace bench {

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

/// The rounds that count.
template <class Round>
struct Rounds {
  std::vector<Round> played;
  bool quiet = false;  ///< played while nobody else used the machine much

  /// The median over rounds of what `pick` takes out of each; NaNs do not count.
  template <class Pick>
  double median_of(Pick&& pick) const {
    std::vector<double> values;
    for (auto const& round : played) {
      double const value = pick(round);
      if (!std::isnan(value)) values.push_back(value);
    }
    return median(std::move(values));
  }
};

/// How many rounds to play.
struct RoundPlan {
  int wanted = 21;
  double most_seconds = 30;  ///< Then whatever there is must do, three rounds at least.
};
inline RoundPlan round_plan(bool quick) { return quick ? RoundPlan{5, 0.5} : RoundPlan{}; }

/// Plays the wanted number of quiet rounds, or, on a busy machine, up to three times as many of any
/// kind. The choice looks at others' use of the machine only, never at the times.
/// @param pids the processes that are measured. @param play called with the round's number.
template <class Play>
auto play_rounds(RoundPlan plan, std::vector<pid_t> const& pids, Play&& play) {
  constexpr double quiet_share = 0.12;
  using Round = decltype(play(0));
  std::vector<Round> quiet, all;
  auto const start = Clock::now();
  auto const is_over = [&] {
    auto const played = static_cast<int>(all.size());
    return static_cast<int>(quiet.size()) >= plan.wanted || played >= 3 * plan.wanted ||
           (played >= 3 && microseconds_since(start) > plan.most_seconds * 1e6);
  };
  for (int i = 0; !is_over(); ++i) {
    auto const before = CpuUse::now(pids);
    all.push_back(play(i));
    if (CpuUse::now(pids).others_since(before) < quiet_share) quiet.push_back(all.back());
  }
  bool const enough = 2 * static_cast<int>(quiet.size()) >= plan.wanted;
  return Rounds<Round>{enough ? std::move(quiet) : std::move(all), enough};
}

}  // namespace bench
