// The harness of the comparisons: contestants (distgrad, libtorch's TensorPipe agent, a bare TCP
// echo) that take turns in one run, each in two processes of its own.
//
// The program runs itself again for every process. The *conductor*, the process the user started,
// loads no agent and no engine; it tells one driver at a time to run a short chunk of calls and
// gets the chunk's median back. Contestants therefore share neither threads nor heap, and noise of
// the machine meets all of them alike.
#pragma once

#include "../support/report.hpp"
#include "../support/rounds.hpp"
#include "contestant.hpp"

namespace bench {

/// One line of the result: what is measured, and how it shall compare with the reference.
struct Row {
  std::string label;        // for people: "4 B"
  std::string json_fields;  // for programs: "\"size_bytes\":4"
  double target_ratio = 0;  // of every ratio to the reference; 0: no target
};

/// A benchmark program: its rows, who takes part, and what their processes run.
struct Program {
  std::string name;
  std::vector<Row> rows;
  std::vector<std::string> contestants;
  std::size_t own = 1;  // so many of them are ours; ratios compare each with those behind it
  std::string reference = "torch";  // the contestant that targets speak of
  std::string absent;               // says who cannot take part, and why
  std::function<void(Role const&)> run_role;
  bool measure_idle = false;
  /// Rows without contestants, measured in the conductor when all contestants are gone.
  std::function<void(bool quick, Targets&)> own_rows = nullptr;
};

/// Ours first, the echo last, libtorch between them unless `why_torch_is_absent` has a reason.
inline void add_contestants(Program& program, std::vector<std::string> own,
                            std::string const& why_torch_is_absent) {
  program.own = own.size();
  program.contestants = std::move(own);
  if (why_torch_is_absent.empty()) {
    program.contestants.push_back("torch");
  } else {
    program.absent = "no torch columns: " + why_torch_is_absent;
  }
  program.contestants.push_back("echo");
}

class Conductor {
 public:
  Conductor(Program const& program, bool quick, Targets& targets)
      : program_(program), quick_(quick), targets_(targets) {
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
  using Round = std::vector<double>;  // NaN for a contestant that has failed

  Round play_round(int row, std::size_t first, int warm_up_calls) {
    ChunkRequest const request{row, warm_up_calls, 3, quick_ ? 20 : 50};
    Round round(contestants_.size());
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      std::size_t const turn = (first + i) % contestants_.size();  // nobody always goes first
      round[turn] = contestants_[turn]->chunk(request).value_or(std::nan(""));
    }
    return round;
  }

  void run_row(int row) {
    play_round(row, 0, quick_ ? 5 : 20);  // not counted: threads, caches and heaps warm up
    print(program_.rows[static_cast<std::size_t>(row)],
          play_rounds(round_plan(quick_), pids_,
                      [&](int i) { return play_round(row, static_cast<std::size_t>(i), 2); }));
  }

  void print(Row const& row, Rounds<Round> const& rounds) {
    std::vector<double> us;
    JsonLine json(program_.name);
    json.add_fields(row.json_fields);
    std::string human = program_.name + ", " + row.label + ":";
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      auto const& one = *contestants_[i];
      us.push_back(one.failure().empty() ? rounds.median_of([i](Round const& r) { return r[i]; })
                                         : std::nan(""));
      json.add(one.name() + "_us", us[i]);
      if (!std::isnan(us[i])) human += "  " + one.name() + " " + number(us[i]) + " us";
    }
    for (std::size_t i = 0; i < program_.own; ++i)
      for (std::size_t k = i + 1; k < us.size(); ++k) human += add_ratio(json, row, rounds, i, k);
    json.add("rounds", static_cast<double>(rounds.played.size())).add("quiet", rounds.quiet);
    json.print();
    std::fprintf(stderr, "%s%s\n", human.c_str(), rounds.quiet ? "" : "  [the machine was busy]");
  }

  /// The median of the rounds' ratios: what drifts from round to round is no part of it.
  /// @return what people are told.
  std::string add_ratio(JsonLine& json, Row const& row, Rounds<Round> const& rounds, std::size_t of,
                        std::size_t to) {
    if (!contestants_[of]->failure().empty() || !contestants_[to]->failure().empty()) return {};
    double const ratio = rounds.median_of([&](Round const& r) { return r[of] / r[to]; });
    auto const &one = contestants_[of]->name(), &other = contestants_[to]->name();
    json.add(one + "_over_" + other, ratio);
    std::string const what = one + " / " + other;
    bool const has_target = other == program_.reference && row.target_ratio > 0;
    return "  " + what + " " + number(ratio) +
           (has_target ? targets_.check(program_.name + ", " + row.label + ", " + what, ratio,
                                        row.target_ratio)
                       : "");
  }

  /// How much of a core the two idle processes of each contestant use.
  void run_idle() {
    constexpr double target_percent = 1;
    double const seconds = 3;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // what starting up left behind
    std::vector<double> before;
    auto const start = Clock::now();
    for (auto const& one : contestants_) before.push_back(used(*one));
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    JsonLine json("idle");
    json.add("seconds", seconds);
    std::string human = "idle, two processes each:";
    for (std::size_t i = 0; i < contestants_.size(); ++i) {
      double const share = (used(*contestants_[i]) - before[i]) / microseconds_since(start);
      auto const& one = *contestants_[i];
      if (!one.failure().empty()) continue;
      json.add(one.name() + "_cores", share);
      human += "  " + one.name() + " " + number(share * 100) + " % of a core";
      if (one.name() == "distgrad")
        human += targets_.check("idle, distgrad, % of a core", share * 100, target_percent);
    }
    json.print();
    std::fprintf(stderr, "%s\n", human.c_str());
  }

  static double used(Contestant const& one) {
    double sum = 0;
    for (pid_t pid : one.pids()) sum += CpuUse::of(pid);
    return sum;
  }

  Program const& program_;
  bool quick_;
  Targets& targets_;
  std::vector<std::unique_ptr<Contestant>> contestants_;
  std::vector<pid_t> pids_;
};

}  // namespace bench
