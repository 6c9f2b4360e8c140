#include <distgrad/engine/pass_protocol.hpp>

#include "protocol_words.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace fast_pass_simulation_tests {

using namespace protocol_words;

namespace {

/// Workers that send gradients to each other by a random plan, over a network that keeps the order
/// of each pair and nothing else. A plan may lack a gradient: then the pass must be found stuck.
class Simulation {
 public:
  Simulation(unsigned seed, bool keeps_back)
      : random_(seed), workers_(pick(2, 5)), ticks_(seed % 2 == 0 ? 2 : 30) {
    for (std::uint32_t i = 0; i < workers_; ++i) {
      parts_.push_back({part_of(WorkerId{i}, {.is_smart = false}), false, 0, 0, 0, {}});
    }
    plan(keeps_back);
  }

  /// Until the initiator is finished. @return false if it never is.
  bool run() {
    send_what_follows(0);
    for (int step = 0; step < 100000; ++step) {
      if (parts_[0].protocol.is_finished()) return true;
      auto const choice = pick(0, 999);
      if (choice < ticks_) {  // a way there and back takes about a hundred steps
        tick();
      } else if (choice < 500) {
        work(pick(0, workers_ - 1));
      } else {
        deliver(pick(0, workers_ - 1), pick(0, workers_ - 1));
      }
      look_at_the_end();
    }
    return false;
  }

  bool everything_is_done() const {
    return std::ranges::all_of(parts_, [](Part const& p) { return p.is_complete(); });
  }
  std::optional<WireError> const& error() const { return parts_[0].protocol.error(); }

 private:
  struct Gradient {
    std::uint32_t to;
    std::size_t after;  // sent when its sender has worked on so many gradients
  };
  struct Part {
    PassProtocol protocol;
    bool has_joined;
    std::size_t expected, inbox, worked;
    std::vector<Gradient> plan;
    std::size_t sent = 0;
    bool is_complete() const { return worked == expected && sent == plan.size(); }
  };
  struct Frame {
    enum class Kind { gradient, done, query, status, abort, aborted } kind;
    std::uint32_t number = 0;
    PassStatus status = {};
  };

  std::uint32_t pick(std::uint32_t low, std::uint32_t high) {
    return std::uniform_int_distribution<std::uint32_t>(low, high)(random_);
  }

  // Plays a pass without delays: whoever got a gradient sends some more, as long as there is fuel.
  void plan(bool keeps_back) {
    std::deque<std::uint32_t> arrived;
    std::vector<std::size_t> worked(workers_);
    auto const let_send = [&](std::uint32_t from) {
      for (auto n = pick(0, 3); n > 0 && fuel_ > 0; --n) {
        auto const to = pick(0, workers_ - 1);
        if (to == from) continue;
        --fuel_;
        parts_[from].plan.push_back({to, worked[from]});
        ++parts_[to].expected;
        arrived.push_back(to);
      }
    };
    parts_[0].plan.push_back({1, 0});
    ++parts_[1].expected;
    arrived.push_back(1);
    let_send(0);
    while (!arrived.empty()) {
      auto const worker = arrived.front();
      arrived.pop_front();
      ++worked[worker];
      let_send(worker);
    }
    if (!keeps_back) return;
    // Somebody who takes part waits for a gradient that is nobody's to send.
    auto stuck = pick(0, workers_ - 1);
    while (stuck != 0 && parts_[stuck].expected == 0) --stuck;
    ++parts_[stuck].expected;
  }

  void post(std::uint32_t from, std::uint32_t to, Frame frame) {
    network_[from * 8 + to].push_back(std::move(frame));
  }
  void carry_out(std::uint32_t self, PassActions const& actions) {
    if (actions.stop) carry_out(self, parts_[self].protocol.stopped());
    if (actions.send_done) {
      CHECK(parts_[self].is_complete());
      post(self, 0, {Frame::Kind::done, 0, parts_[self].protocol.own_status(0)});
    }
    for (auto to : actions.abort) post(self, to.value, {Frame::Kind::abort});
    for (auto to : actions.aborted) post(self, to.value, {Frame::Kind::aborted});
  }
  void send_what_follows(std::uint32_t self) {
    auto& part = parts_[self];
    while (part.sent < part.plan.size() && part.plan[part.sent].after <= part.worked) {
      auto const to = part.plan[part.sent++].to;
      part.protocol.gradient_sent(WorkerId{to});
      post(self, to, {Frame::Kind::gradient, ++last_gradient_});
    }
    if (part.is_complete()) carry_out(self, part.protocol.local_part_complete());
  }
  void work(std::uint32_t self) {
    auto& part = parts_[self];
    if (part.inbox == 0) return;
    --part.inbox;
    ++part.worked;
    send_what_follows(self);
  }
  PassStatus status_of(std::uint32_t self, std::uint32_t round) {
    auto const& part = parts_[self];
    // Unknown to who has not joined yet, or has finished.
    if (self != 0 && (!part.has_joined || part.protocol.is_finished())) {
      return {round, false, 0, 0, {}, {}, {}};
    }
    auto status = part.protocol.own_status(round);
    status.is_idle = part.inbox == 0;
    return status;
  }
  void tick() {
    auto const actions = parts_[0].protocol.tick();
    if (actions.query_round == 0) return;
    carry_out(0, parts_[0].protocol.status(w0, status_of(0, actions.query_round)));
    for (auto to : actions.query) post(0, to.value, {Frame::Kind::query, actions.query_round});
  }
  void deliver(std::uint32_t from, std::uint32_t to) {
    auto& link = network_[from * 8 + to];
    if (link.empty()) return;
    auto frame = std::move(link.front());
    link.pop_front();
    auto& part = parts_[to];
    switch (frame.kind) {
      case Frame::Kind::gradient:
        if (part.protocol.is_finished()) break;
        part.has_joined = true;
        part.protocol.gradient_received(WorkerId{from}, sent_by(WorkerId{to}, frame.number));
        ++part.inbox;
        break;
      case Frame::Kind::done:
        carry_out(to, part.protocol.done(WorkerId{from}, std::move(frame.status)));
        break;
      case Frame::Kind::query:
        post(to, from, {Frame::Kind::status, 0, status_of(to, frame.number)});
        break;
      case Frame::Kind::status:
        carry_out(to, part.protocol.status(WorkerId{from}, std::move(frame.status)));
        break;
      case Frame::Kind::abort: carry_out(to, part.protocol.abort(WorkerId{from})); break;
      case Frame::Kind::aborted: carry_out(to, part.protocol.aborted(WorkerId{from}, {})); break;
    }
  }
  void look_at_the_end() {
    auto const& protocol = parts_[0].protocol;
    if (protocol.is_finished() && !protocol.error()) CHECK(everything_is_done());
  }

  std::mt19937 random_;
  std::uint32_t workers_, ticks_;
  std::size_t fuel_ = 25;
  std::uint32_t last_gradient_ = 0;
  std::vector<Part> parts_;
  std::deque<Frame> network_[64];
};

}  // namespace

TEST_CASE("at random: a pass ends when every part is complete, and is never found stuck") {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Simulation simulation(seed, false);
    REQUIRE(simulation.run());
    CHECK_FALSE(simulation.error());
    CHECK(simulation.everything_is_done());
  }
}

TEST_CASE("at random: a pass that lacks a gradient is always found stuck") {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    Simulation simulation(seed, true);
    REQUIRE(simulation.run());
    REQUIRE(simulation.error());
    CHECK((simulation.error()->code == errc::pass_stuck));
    CHECK_FALSE(simulation.everything_is_done());
  }
}

}  // namespace fast_pass_simulation_tests
