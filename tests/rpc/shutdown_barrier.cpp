#include <distgrad/rpc/shutdown_barrier.hpp>

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include <doctest/doctest.h>

namespace shutdown_barrier_tests {

using namespace distgrad;

namespace {

using Send = ShutdownBarrier::Send;
using Sends = std::vector<Send>;
constexpr WorkerId zero{0}, one{1}, two{2};

Sends to(std::vector<WorkerId> const& workers, FrameKind kind, std::uint64_t round) {
  Sends sends;
  for (auto const worker : workers) sends.push_back({worker, kind, round, 0});
  return sends;
}
Sends state(std::uint64_t round, std::uint64_t calls) {
  return {{zero, FrameKind::shutdown_state, round, calls}};
}

/// Rank 0 of a group of two in which both are ready: round 1 has begun.
ShutdownBarrier in_round_one() {
  ShutdownBarrier rank_0(zero, 2);
  rank_0.on_message(zero, FrameKind::shutdown_ready, 0, 0);
  rank_0.on_message(one, FrameKind::shutdown_ready, 0, 0);
  return rank_0;
}

}  // namespace

TEST_CASE("working: who wants to leave tells rank 0, and tells it again when asked again") {
  ShutdownBarrier worker(one, 2);
  CHECK(worker.want_to_leave() == to({zero}, FrameKind::shutdown_ready, 0));
  CHECK(worker.want_to_leave() == to({zero}, FrameKind::shutdown_ready, 0));
  CHECK_FALSE(worker.has_left());
  CHECK_FALSE(worker.is_asked());
}

TEST_CASE("waiting: a check is answered once, as soon as the worker is idle") {
  ShutdownBarrier worker(one, 2);
  worker.want_to_leave();
  CHECK(worker.look(true, 5).empty());  // nobody asked
  CHECK(worker.on_message(zero, FrameKind::shutdown_check, 3, 0).empty());
  CHECK(worker.is_asked());
  CHECK(worker.look(false, 5).empty());
  CHECK(worker.is_asked());
  CHECK(worker.look(true, 6) == state(3, 6));
  CHECK_FALSE(worker.is_asked());
  CHECK(worker.look(true, 6).empty());
}

TEST_CASE("waiting: leave means left") {
  ShutdownBarrier worker(one, 2);
  worker.want_to_leave();
  CHECK(worker.on_message(zero, FrameKind::shutdown_leave, 2, 0).empty());
  CHECK(worker.has_left());
}

TEST_CASE("gathering: round 1 begins when the last worker is ready") {
  ShutdownBarrier rank_0(zero, 3);
  CHECK(rank_0.missing() == std::vector{zero, one, two});
  CHECK(rank_0.on_message(two, FrameKind::shutdown_ready, 0, 0).empty());
  CHECK(rank_0.on_message(two, FrameKind::shutdown_ready, 0, 0).empty());
  CHECK(rank_0.on_message(zero, FrameKind::shutdown_ready, 0, 0).empty());
  CHECK(rank_0.missing() == std::vector{one});
  CHECK(rank_0.on_message(one, FrameKind::shutdown_ready, 0, 0) ==
        to({zero, one, two}, FrameKind::shutdown_check, 1));
  CHECK(rank_0.missing().empty());
}

TEST_CASE("round r: everybody leaves when two rounds found the same numbers of calls") {
  auto rank_0 = in_round_one();
  CHECK(rank_0.on_message(one, FrameKind::shutdown_state, 1, 4).empty());
  CHECK(rank_0.on_message(zero, FrameKind::shutdown_state, 1, 7) ==
        to({zero, one}, FrameKind::shutdown_check, 2));
  CHECK(rank_0.on_message(zero, FrameKind::shutdown_state, 2, 7).empty());
  CHECK(rank_0.on_message(one, FrameKind::shutdown_state, 2, 4) ==
        to({zero, one}, FrameKind::shutdown_leave, 2));
}

TEST_CASE("round r: another round follows when a call was made since the last one") {
  auto rank_0 = in_round_one();
  rank_0.on_message(one, FrameKind::shutdown_state, 1, 4);
  rank_0.on_message(zero, FrameKind::shutdown_state, 1, 7);
  rank_0.on_message(one, FrameKind::shutdown_state, 2, 4);
  CHECK(rank_0.on_message(zero, FrameKind::shutdown_state, 2, 8) ==
        to({zero, one}, FrameKind::shutdown_check, 3));
  rank_0.on_message(one, FrameKind::shutdown_state, 3, 5);
  CHECK(rank_0.on_message(zero, FrameKind::shutdown_state, 3, 8) ==
        to({zero, one}, FrameKind::shutdown_check, 4));
}

TEST_CASE("round r: the state of another round does not count") {
  auto rank_0 = in_round_one();
  CHECK(rank_0.on_message(one, FrameKind::shutdown_state, 1, 0).empty());
  CHECK(rank_0.on_message(zero, FrameKind::shutdown_state, 2, 0).empty());
  CHECK(rank_0.on_message(zero, FrameKind::shutdown_state, 0, 0).empty());
  CHECK(rank_0.on_message(zero, FrameKind::shutdown_state, 1, 0) ==
        to({zero, one}, FrameKind::shutdown_check, 2));
}

TEST_CASE("over: nothing more is sent, whoever goes") {
  auto rank_0 = in_round_one();
  for (std::uint64_t round : {1, 2}) {
    rank_0.on_message(zero, FrameKind::shutdown_state, round, 0);
    rank_0.on_message(one, FrameKind::shutdown_state, round, 0);
  }
  rank_0.on_message(zero, FrameKind::shutdown_leave, 2, 0);
  CHECK(rank_0.has_left());
  CHECK(rank_0.peer_lost(one).empty());
  CHECK(rank_0.on_message(one, FrameKind::shutdown_ready, 0, 0).empty());
}

TEST_CASE("a lost worker counts as ready and idle") {
  ShutdownBarrier rank_0(zero, 3);
  rank_0.on_message(zero, FrameKind::shutdown_ready, 0, 0);
  rank_0.on_message(one, FrameKind::shutdown_ready, 0, 0);
  CHECK(rank_0.peer_lost(two) == to({zero, one}, FrameKind::shutdown_check, 1));
  rank_0.on_message(zero, FrameKind::shutdown_state, 1, 0);
  rank_0.on_message(one, FrameKind::shutdown_state, 1, 0);
  rank_0.on_message(zero, FrameKind::shutdown_state, 2, 0);
  CHECK(rank_0.peer_lost(one).size() == 1);  // its answer is not waited for
}

TEST_CASE("who loses rank 0 may leave, who loses another goes on") {
  ShutdownBarrier worker(one, 3);
  CHECK(worker.peer_lost(two).empty());
  CHECK_FALSE(worker.has_left());
  CHECK(worker.peer_lost(zero).empty());
  CHECK(worker.has_left());
}

namespace {

/// A whole group without sockets and threads: calls that cause calls, in any order that channels
/// allow, while the workers want to leave one after the other.
class Simulation {
 public:
  Simulation(std::uint32_t size, std::uint32_t seed) : random_(seed) {
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      workers_.emplace_back(ShutdownBarrier(WorkerId{rank}, size));
      workers_.back().planned_calls = pick(4);
    }
  }

  /// @return whether all who live have left in the end.
  bool run(bool with_deaths) {
    for (int step = 0; step < 20000; ++step) {
      if (with_deaths && pick(60) == 0) die();
      act(pick(std::uint32_t(workers_.size())));
      for (int i = 0; i < 2; ++i) deliver();
      if (all_left()) return true;
    }
    return false;
  }
  /// Calls that were under way when rank 0 told the others to leave.
  int broken_promises = 0;

 private:
  struct Frame {
    std::optional<Send> barrier;  // else a call, an answer, or that the sender is gone
    enum class Kind { call, answer, gone } kind{};
    std::uint32_t depth = 0;
  };
  struct Handler {
    std::uint32_t caller;
    std::uint32_t nested;  // calls it will make
    std::uint32_t depth;
  };
  struct Worker {
    explicit Worker(ShutdownBarrier b) : barrier(std::move(b)) {}
    ShutdownBarrier barrier;
    std::uint32_t planned_calls = 0;
    bool wants_to_leave = false, is_alive = true;
    std::uint64_t calls_made = 0;
    std::map<std::uint32_t, int> pending;  // by callee
    std::vector<Handler> running;
    bool is_idle() const { return pending.empty() && running.empty(); }
  };

  std::uint32_t pick(std::uint32_t choices) { return std::uint32_t(random_() % choices); }

  void call(std::uint32_t from, std::uint32_t depth) {
    auto const callee = pick(std::uint32_t(workers_.size()));
    auto& caller = workers_[from];
    ++caller.calls_made;
    if (!workers_[callee].is_alive && heard_of_death(from, callee)) return;  // fails at once
    ++caller.pending[callee];
    channels_[{from, callee}].push_back({std::nullopt, Frame::Kind::call, depth});
  }
  bool heard_of_death(std::uint32_t by, std::uint32_t of) const {
    return heard_.contains({by, of});
  }

  void act(std::uint32_t rank) {
    auto& worker = workers_[rank];
    if (!worker.is_alive) return;
    if (!worker.running.empty() && pick(2) == 0) {
      auto& handler = worker.running[pick(std::uint32_t(worker.running.size()))];
      if (handler.nested > 0) {
        --handler.nested;
        call(rank, handler.depth + 1);
      } else {
        channels_[{rank, handler.caller}].push_back({std::nullopt, Frame::Kind::answer, 0});
        std::swap(handler, worker.running.back());
        worker.running.pop_back();
      }
    } else if (worker.planned_calls > 0) {
      if (pick(3) == 0) --worker.planned_calls, call(rank, 0);
    } else if (!worker.wants_to_leave && pick(4) == 0) {
      worker.wants_to_leave = true;
      send(rank, worker.barrier.want_to_leave());
    }
    send(rank, worker.barrier.look(worker.is_idle(), worker.calls_made));
  }

  void send(std::uint32_t from, Sends const& sends) {
    for (auto const& send : sends) {
      if (send.kind == FrameKind::shutdown_leave && !is_quiet()) ++broken_promises;
      channels_[{from, send.to.value}].push_back({send, {}, 0});
    }
  }

  /// Whether no call is under way between those who live.
  bool is_quiet() const {
    for (auto const& worker : workers_) {
      if (worker.is_alive && !worker.running.empty()) return false;
      for (auto const& [callee, count] : worker.pending) {
        if (worker.is_alive && workers_[callee].is_alive) return false;
      }
    }
    return true;
  }

  /// The oldest frame of any channel arrives.
  void deliver() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> busy;
    for (auto const& [ends, frames] : channels_) {
      if (!frames.empty() && workers_[ends.second].is_alive) busy.push_back(ends);
    }
    if (busy.empty()) return;
    auto const ends = busy[pick(std::uint32_t(busy.size()))];
    auto const frame = channels_[ends].front();
    channels_[ends].pop_front();
    auto& worker = workers_[ends.second];
    if (frame.barrier) {
      send(ends.second, worker.barrier.on_message(WorkerId{ends.first}, frame.barrier->kind,
                                                  frame.barrier->round, frame.barrier->calls));
    } else if (frame.kind == Frame::Kind::call) {
      worker.running.push_back({ends.first, frame.depth < 4 ? pick(3) : 0, frame.depth});
    } else if (frame.kind == Frame::Kind::answer) {
      if (--worker.pending[ends.first] == 0) worker.pending.erase(ends.first);
    } else {
      heard_.insert({ends.second, ends.first});
      worker.pending.erase(ends.first);
      send(ends.second, worker.barrier.peer_lost(WorkerId{ends.first}));
    }
    send(ends.second, worker.barrier.look(worker.is_idle(), worker.calls_made));
  }

  /// Some worker, rank 0 excepted, goes without a word; what it sent before still arrives.
  void die() {
    auto const rank = pick(std::uint32_t(workers_.size()));
    if (rank == 0 || !workers_[rank].is_alive) return;
    workers_[rank].is_alive = false;
    for (std::uint32_t other = 0; other < workers_.size(); ++other) {
      if (other != rank) channels_[{rank, other}].push_back({std::nullopt, Frame::Kind::gone, 0});
    }
  }

  bool all_left() const {
    for (auto const& worker : workers_) {
      if (worker.is_alive && !worker.barrier.has_left()) return false;
    }
    return true;
  }

  std::mt19937 random_;
  std::vector<Worker> workers_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Frame>> channels_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> heard_;
};

}  // namespace

TEST_CASE("in any order of events nobody leaves while a call is under way, and all leave") {
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    Simulation group(1 + seed % 5, seed);
    REQUIRE(group.run(false));
    REQUIRE(group.broken_promises == 0);
  }
}

TEST_CASE("the same when workers die meanwhile") {
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    Simulation group(2 + seed % 4, seed);
    REQUIRE(group.run(true));
    REQUIRE(group.broken_promises == 0);
  }
}

}  // namespace shutdown_barrier_tests
