// Every order in which messages and operations can happen, for small groups and scripts; and long
// random runs of a larger one.
#include "fork_model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <unordered_set>

namespace fork_protocol_model_tests {

using namespace fork_model;

namespace {

struct Seen {
  std::uint32_t before;
  Transition how;
};

std::string story(Script const& script, std::vector<Seen> const& seen, std::uint32_t state,
                  std::optional<Transition> last) {
  std::vector<Transition> path;
  for (; state != 0; state = seen[state].before) path.push_back(seen[state].how);
  World world(script);
  std::string out;
  for (auto step = path.rbegin(); step != path.rend(); ++step) {
    out += "\n  " + world.describe(*step);
    world.apply(*step);
  }
  if (last) out += "\n  " + world.describe(*last) + "\nbefore the last step:";
  return out + "\n" + world.text();
}

struct Outcome {
  std::size_t states = 0, ends = 0;
  std::string failure;
};

// Breadth first, so that a failure comes with a shortest story.
Outcome explore(Script const& script, bool with_copies, std::size_t most_states = 1'000'000) {
  Outcome outcome;
  std::vector<Seen> seen{{0, {}}};
  std::unordered_set<std::uint64_t> hashes;
  std::deque<std::pair<std::uint32_t, World>> queue;
  queue.emplace_back(0, World(script));
  hashes.insert(queue.front().second.hash());
  for (; !queue.empty() && seen.size() < most_states; queue.pop_front()) {
    auto const& [number, world] = queue.front();
    bool is_end = true;
    std::optional<Transition> last;
    try {
      for (auto const t : world.transitions(with_copies)) {
        is_end = is_end && world.is_optional(t);
        last = t;
        auto next = world;
        next.apply(t);
        if (!hashes.insert(next.hash()).second) continue;
        next.check();
        next.check_duplicates();
        seen.push_back({number, t});
        queue.emplace_back(static_cast<std::uint32_t>(seen.size() - 1), std::move(next));
      }
      last.reset();
      if (is_end) world.check_end();
      outcome.ends += is_end;
    } catch (std::exception const& error) {
      outcome.failure = error.what() + story(script, seen, number, last);
      break;
    }
  }
  if (seen.size() >= most_states) outcome.failure = "too many states for a test";
  outcome.states = seen.size();
  return outcome;
}

// How the first reference comes about; worker 0 owns the value.
enum class Root { remote, remote_to_self, local };

int root(Script& script, Root kind) {
  if (kind == Root::local) return script.local(0);
  return script.create(kind == Root::remote ? 1 : 0, 0);
}

struct Totals {
  std::size_t scripts = 0, states = 0, ends = 0;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  void run(Script const& script, std::string const& name, bool with_copies = false) {
    auto const outcome = explore(script, with_copies);
    CHECK_MESSAGE(outcome.failure.empty(), name << ": " << outcome.failure);
    CHECK_MESSAGE(outcome.ends > 0, name << " never ends");
    ++scripts, states += outcome.states, ends += outcome.ends;
  }
  ~Totals() {
    auto const spent = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - start);
    MESSAGE(scripts << " scripts, " << states << " states, " << ends << " ends, " << spent.count()
                    << " ms");
  }
};

template <class Change>
void two_shares(Root kind, Totals& totals, Change change) {
  for (std::uint32_t first = 0; first < 3; ++first) {
    for (std::uint32_t second = 0; second < 3; ++second) {
      for (bool const is_chain : {false, true}) {
        if (!is_chain && second < first) continue;  // the same as the other way round
        Script script(3);
        auto const made = root(script, kind);
        auto const child = script.share(made, first);
        script.share(is_chain ? child : made, second);
        change(script, made);
        totals.run(script, std::string(is_chain ? "chain" : "fan") + " over " +
                               std::to_string(first) + " and " + std::to_string(second));
      }
    }
  }
}

void nothing(Script&, int) {}

// Several values, made and shared at random among four workers.
Script random_script(std::mt19937& random, bool with_failures) {
  auto const below = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
  Script script(4);
  while (script.handles() < 40) {
    if (script.handles() > 2 && below(4) != 0) {
      script.share(static_cast<int>(below(script.handles())), below(4));
    } else if (below(4) == 0) {
      script.local(below(4));
    } else {
      auto const made = script.create(below(4), below(4));
      if (with_failures) script.may_time_out(made);
    }
  }
  if (with_failures && below(2) == 0) script.may_crash(below(4));
  return script;
}

std::size_t random_run(std::uint32_t seed, bool with_failures) {
  std::mt19937 random(seed);
  auto const script = random_script(random, with_failures);
  World world(script);
  for (std::size_t steps = 0;; ++steps) {
    auto const all = world.transitions(true);
    if (std::ranges::all_of(all, [&](Transition t) { return world.is_optional(t); })) {
      world.check_end();
      return steps;
    }
    auto const chosen = all[random() % all.size()];
    // Failures are rare, or the runs would be short.
    if (world.is_optional(chosen) && random() % 16 != 0) continue;
    world.apply(chosen);
    world.check();
  }
}

void random_runs(bool with_failures) {
  std::size_t steps = 0;
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    try {
      steps += random_run(seed, with_failures);
    } catch (std::exception const& error) {
      FAIL_CHECK("seed " << seed << ": " << error.what());
    }
  }
  MESSAGE("200 runs, " << steps << " steps");
}

}  // namespace

TEST_CASE("any two shares of a remote value end with nothing left, in every order") {
  Totals totals;
  two_shares(Root::remote, totals, nothing);
}

TEST_CASE("any two shares of a value its owner made end with nothing left, in every order") {
  Totals totals;
  two_shares(Root::local, totals, nothing);
}

TEST_CASE("any two shares of a value remote to oneself end with nothing left, in every order") {
  Totals totals;
  two_shares(Root::remote_to_self, totals, nothing);
}

TEST_CASE("a creation given up at any time leaves nothing behind") {
  Totals totals;
  auto const may_time_out = [](Script& script, int made) { script.may_time_out(made); };
  two_shares(Root::remote, totals, may_time_out);
}

TEST_CASE("a crash of any worker at any time leaves nothing behind on the others") {
  for (std::uint32_t worker = 0; worker < 3; ++worker) {
    Totals totals;
    auto const may_crash = [&](Script& script, int) { script.may_crash(worker); };
    two_shares(Root::remote, totals, may_crash);
  }
}

TEST_CASE("copies of messages that arrive at any time change nothing") {
  Totals totals;
  for (auto const kind : {Root::remote, Root::local, Root::remote_to_self}) {
    for (std::uint32_t to = 0; to < 3; ++to) {
      Script script(3);
      script.share(root(script, kind), to);
      totals.run(script, "share with " + std::to_string(to), true);
    }
  }
}

TEST_CASE("long random runs of four workers end with nothing left") { random_runs(false); }

TEST_CASE("long random runs with lost creations and a crash end with nothing left") {
  random_runs(true);
}

}  // namespace fork_protocol_model_tests
