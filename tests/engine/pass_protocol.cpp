#include <distgrad/engine/pass_protocol.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace distgrad;

namespace {

constexpr WorkerId w0{0}, w1{1}, w2{2}, w3{3};
using Ids = std::vector<WorkerId>;

PassProtocol initiator() { return {w0, w0}; }
PassProtocol participant() { return {w1, w0}; }

WireError broken() { return {errc::pass_failed, "w9", "MulBackward0", {}, "broken"}; }

PassStatus idle(std::uint32_t round, std::uint64_t sent, std::uint64_t received,
                std::set<WorkerId> peers = {}) {
  return {round, true, sent, received, std::move(peers), {}};
}
PassStatus last(std::uint64_t sent, std::uint64_t received, std::set<WorkerId> peers = {}) {
  return idle(0, sent, received, std::move(peers));
}

bool is_nothing(PassActions const& a) {
  return !a.send_done && !a.send_failed && a.abort.empty() && a.query.empty() && !a.finished;
}
bool only_finishes(PassActions const& a) {
  return a.finished && !a.send_done && !a.send_failed && a.abort.empty();
}

}  // namespace

// --- the rows of the table -----------------------------------------------------------------------

TEST_CASE("a participant whose part is complete says so and is finished") {
  auto part = participant();
  part.gradient_received(w0);
  part.gradient_sent(w2);
  auto const actions = part.local_part_complete();
  CHECK(actions.send_done);
  CHECK(actions.finished);
  CHECK_FALSE(actions.send_failed);
  CHECK(part.is_finished());
  CHECK_FALSE(part.error());
  CHECK(part.peers() == std::set{w2});
  CHECK(is_nothing(part.local_part_complete()));
}

TEST_CASE("an initiator alone is finished with its own part") {
  auto pass = initiator();
  CHECK(only_finishes(pass.local_part_complete()));
  CHECK(pass.is_finished());
}

TEST_CASE("an initiator whose part is complete waits for its participants") {
  auto pass = initiator();
  pass.gradient_sent(w1);
  pass.gradient_sent(w2);
  pass.gradient_sent(w1);
  CHECK(is_nothing(pass.local_part_complete()));
  CHECK(pass.unfinished() == Ids{w1, w2});
  CHECK(is_nothing(pass.done(w2, last(0, 1))));
  CHECK(pass.unfinished() == Ids{w1});
  CHECK(only_finishes(pass.done(w1, last(0, 2))));
}

TEST_CASE("an initiator whose participants are done before it finishes with its own part") {
  auto pass = initiator();
  pass.gradient_sent(w1);
  CHECK(is_nothing(pass.done(w1, last(0, 1))));
  CHECK_FALSE(pass.is_finished());
  CHECK(only_finishes(pass.local_part_complete()));
}

TEST_CASE("a DONE tells the initiator of workers it did not know") {
  auto pass = initiator();
  pass.gradient_sent(w1);
  CHECK(is_nothing(pass.local_part_complete()));
  CHECK(is_nothing(pass.done(w1, last(2, 1, {w2, w0}))));
  CHECK(pass.participants() == std::set{w1, w2});
  CHECK(is_nothing(pass.done(w2, last(1, 1, {w3}))));
  CHECK(pass.unfinished() == Ids{w3});
  CHECK(only_finishes(pass.done(w3, last(0, 1))));
}

TEST_CASE("a DONE of a worker that nobody named yet counts") {
  auto pass = initiator();
  pass.gradient_sent(w1);
  CHECK(is_nothing(pass.done(w2, last(0, 1))));  // overtook w1's
  CHECK(pass.participants() == std::set{w1, w2});
  CHECK(is_nothing(pass.local_part_complete()));
  CHECK(only_finishes(pass.done(w1, last(1, 1, {w2}))));
}

TEST_CASE("a participant ignores a DONE") {
  auto part = participant();
  CHECK(is_nothing(part.done(w2, last(0, 1))));
  CHECK_FALSE(part.is_finished());
}

TEST_CASE("a failure of a participant goes to the initiator") {
  auto part = participant();
  part.gradient_sent(w2);
  auto const actions = part.failed(broken());
  CHECK(actions.send_failed);
  CHECK(actions.finished);
  CHECK_FALSE(actions.send_done);
  CHECK(actions.abort.empty());
  REQUIRE(part.error());
  CHECK(part.error()->text == "broken");
}

TEST_CASE("a failure of the initiator, or reported to it, aborts all participants") {
  for (bool waiting : {false, true}) {
    auto pass = initiator();
    pass.gradient_sent(w1);
    pass.gradient_sent(w2);
    if (waiting) CHECK(is_nothing(pass.local_part_complete()));
    CHECK(is_nothing(pass.done(w1, last(1, 1, {w3}))));
    auto const actions = pass.failed(broken());
    CHECK(actions.finished);
    CHECK_FALSE(actions.send_failed);
    CHECK(actions.abort == Ids{w1, w2, w3});
    CHECK(pass.error()->function == "MulBackward0");
  }
}

TEST_CASE("an aborted participant aborts those it sent gradients to") {
  auto part = participant();
  part.gradient_sent(w3);
  part.gradient_sent(w2);
  auto const actions = part.aborted();
  CHECK(actions.finished);
  CHECK(actions.abort == Ids{w2, w3});
  CHECK_FALSE(actions.send_failed);
  REQUIRE(part.error());
  CHECK((part.error()->code == errc::pass_aborted));
}

TEST_CASE("the first error stays, and nothing follows the end") {
  for (bool starts : {false, true}) {
    auto pass = starts ? initiator() : participant();
    pass.gradient_sent(w2);
    CHECK(pass.failed(broken()).finished);
    CHECK(is_nothing(pass.failed({errc::timeout, {}, {}, {}, "late"})));
    CHECK(is_nothing(pass.aborted()));
    CHECK(is_nothing(pass.local_part_complete()));
    CHECK(is_nothing(pass.done(w2, last(0, 1))));
    CHECK(is_nothing(pass.status(w2, idle(1, 0, 1))));
    auto const tick = pass.tick();
    CHECK(is_nothing(tick));
    CHECK(tick.query_round == 0);
    CHECK(pass.error()->text == "broken");
  }
}

// --- the watchdog --------------------------------------------------------------------------------

TEST_CASE("only an initiator asks") {
  auto part = participant();
  part.gradient_sent(w2);
  CHECK(part.tick().query_round == 0);
  CHECK(is_nothing(part.status(w2, idle(1, 0, 1))));
}

TEST_CASE("each tick is a round of its own, asked of those who are not done") {
  auto pass = initiator();
  CHECK(pass.tick().query.empty());
  pass.gradient_sent(w1);
  pass.gradient_sent(w2);
  auto const second = pass.tick();
  CHECK(second.query_round == 2);
  CHECK(second.query == Ids{w1, w2});
  pass.done(w1, last(0, 1));
  CHECK(pass.tick().query == Ids{w2});
}

namespace {

/// An initiator that sent one gradient to w1, which is to have sent one on to w2.
struct Stuck {
  PassProtocol pass = initiator();
  Stuck() { pass.gradient_sent(w1); }

  /// One round with these counts of w1 and w2. @return what the last answer led to.
  PassActions round(PassStatus one, PassStatus two, bool own_idle = true) {
    auto const asked = pass.tick().query_round;
    auto own = idle(asked, 1, 0, {w1});
    own.is_idle = own_idle;
    one.round = two.round = asked;
    CHECK(is_nothing(pass.status(w0, own)));
    CHECK(is_nothing(pass.status(w1, one)));
    return pass.status(w2, two);
  }
};

}  // namespace

TEST_CASE("two equal rounds of idle workers with nothing on its way prove a standstill") {
  Stuck s;
  auto one = idle(0, 1, 1, {w2});
  one.awaited.push_back({AutogradMessageId{w1, Incarnation{4}, 77}, w3});
  CHECK(is_nothing(s.round(one, idle(0, 0, 1))));
  auto const actions = s.round(one, idle(0, 0, 1));
  CHECK(actions.finished);
  CHECK(actions.abort == Ids{w1, w2});
  REQUIRE(s.pass.error());
  CHECK((s.pass.error()->code == errc::pass_stuck));
  auto const& text = s.pass.error()->text;
  CHECK(text.find("1/4/77") != std::string::npos);
  CHECK(text.find("worker 1 sent to worker 3") != std::string::npos);
}

TEST_CASE("no single round proves a standstill, and no two that differ") {
  Stuck s;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    // Gradients went to and fro between w1 and w2 since the last round.
    CHECK(is_nothing(s.round(idle(0, i, i, {w2}), idle(0, i - 1, i))));
  }
  CHECK_FALSE(s.pass.is_finished());
}

TEST_CASE("a gradient on its way is no standstill") {
  Stuck s;
  for (int i = 0; i < 5; ++i) CHECK(is_nothing(s.round(idle(0, 1, 1, {w2}), idle(0, 0, 0))));
}

TEST_CASE("a busy worker is no standstill") {
  for (int who = 0; who < 3; ++who) {
    Stuck s;
    auto one = idle(0, 1, 1, {w2}), two = idle(0, 0, 1);
    one.is_idle = who != 1;
    two.is_idle = who != 2;
    for (int i = 0; i < 5; ++i) CHECK(is_nothing(s.round(one, two, who != 0)));
  }
}

TEST_CASE("workers that have become busy since the first of two rounds are no standstill") {
  Stuck s;
  auto const one = idle(0, 1, 1, {w2});
  auto busy = one;
  busy.is_idle = false;
  CHECK(is_nothing(s.round(one, idle(0, 0, 1))));
  CHECK(is_nothing(s.round(busy, idle(0, 0, 1))));
}

TEST_CASE("a gradient that was sent since the first of two rounds is no standstill") {
  Stuck s;
  CHECK(is_nothing(s.round(idle(0, 0, 1, {w2}), idle(0, 0, 1))));
  CHECK(is_nothing(s.round(idle(0, 1, 1, {w2}), idle(0, 0, 1))));
}

TEST_CASE("without the initiator's own answer no round is complete") {
  auto pass = initiator();
  pass.gradient_sent(w1);
  for (int i = 0; i < 4; ++i) {
    auto const asked = pass.tick().query_round;
    CHECK(is_nothing(pass.status(w1, idle(asked, 1, 1, {w0}))));
  }
}

TEST_CASE("an answer to an earlier round is ignored") {
  Stuck s;
  auto const one = idle(0, 1, 1, {w2});
  CHECK(is_nothing(s.round(one, idle(0, 0, 1))));
  auto const asked = s.pass.tick().query_round;
  s.pass.status(w0, idle(asked, 1, 0, {w1}));
  auto answer = one;
  answer.round = asked;
  s.pass.status(w1, answer);
  CHECK(is_nothing(s.pass.status(w2, idle(asked - 1, 0, 1))));
  CHECK(s.pass.status(w2, idle(asked, 0, 1)).finished);
}

TEST_CASE("workers that were busy in the first of two rounds need another") {
  Stuck s;
  auto const one = idle(0, 1, 1, {w2}), two = idle(0, 0, 1);
  auto busy = one;
  busy.is_idle = false;
  CHECK(is_nothing(s.round(busy, two)));
  CHECK(is_nothing(s.round(one, two)));
  CHECK(s.round(one, two).finished);
}

TEST_CASE("a late answer is ignored, and its round proves nothing") {
  Stuck s;
  auto const one = idle(0, 1, 1, {w2});
  CHECK(is_nothing(s.round(one, idle(0, 0, 1))));
  auto const late = s.pass.tick().query_round;
  s.pass.status(w0, idle(late, 1, 0, {w1}));
  auto answer = one;
  answer.round = late;
  s.pass.status(w1, answer);
  // w2's answer comes when the next round has begun.
  auto const next = s.pass.tick().query_round;
  CHECK(next == late + 1);
  CHECK(is_nothing(s.pass.status(w2, idle(late, 0, 1))));
  CHECK(is_nothing(s.round(one, idle(0, 0, 1))));
  CHECK(s.round(one, idle(0, 0, 1)).finished);
}

TEST_CASE("a round asks again for workers that an answer named") {
  auto pass = initiator();
  pass.gradient_sent(w1);
  auto const round = pass.tick().query_round;
  pass.status(w0, idle(round, 1, 0, {w1}));
  CHECK(is_nothing(pass.status(w1, idle(round, 1, 1, {w2}))));
  CHECK(pass.tick().query == Ids{w1, w2});
}

TEST_CASE("workers that are done are not asked: their last counts stand") {
  auto pass = initiator();
  pass.gradient_sent(w1);
  pass.gradient_received(w1);
  pass.done(w1, last(1, 1, {w0}));
  for (int round = 1; round <= 2; ++round) {
    auto const asked = pass.tick();
    CHECK(asked.query.empty());
    auto own = idle(asked.query_round, 1, 1, {w1});
    own.awaited.push_back({AutogradMessageId{w0, Incarnation{4}, 5}, w1});
    CHECK(pass.status(w0, own).finished == (round == 2));
  }
  CHECK((pass.error()->code == errc::pass_stuck));
  CHECK(pass.error()->text.find("worker 0 sent to worker 1") != std::string::npos);
}

TEST_CASE("what a worker that is done sent, and nobody received, is still on its way") {
  auto pass = initiator();
  pass.gradient_sent(w1);
  pass.done(w1, last(1, 1, {w0}));
  for (int round = 0; round < 5; ++round) {
    auto const asked = pass.tick().query_round;
    // Whatever it says after its DONE is not counted a second time.
    CHECK(is_nothing(pass.status(w1, idle(asked, 0, 1))));
    CHECK(is_nothing(pass.status(w0, idle(asked, 1, 0, {w1}))));
  }
}

TEST_CASE("a DONE between two rounds takes the proof back to its beginning") {
  Stuck s;
  auto const one = idle(0, 1, 1, {w2});
  CHECK(is_nothing(s.round(one, idle(0, 0, 1))));
  s.pass.done(w2, last(0, 1));
  for (int round = 1; round <= 2; ++round) {
    auto const asked = s.pass.tick().query_round;
    s.pass.status(w0, idle(asked, 1, 0, {w1}));
    auto answer = one;
    answer.round = asked;
    CHECK(s.pass.status(w1, answer).finished == (round == 2));
  }
}

TEST_CASE("a status says what was counted") {
  auto part = participant();
  part.gradient_received(w0);
  part.gradient_received(w2);
  part.gradient_sent(w2);
  auto const status = part.own_status(7);
  CHECK(status.round == 7);
  CHECK(status.sent == 1);
  CHECK(status.received == 2);
  CHECK(status.peers == std::set{w2});
}

// --- whole passes at random ----------------------------------------------------------------------

namespace {

/// Workers that send gradients to each other by a random plan, over a network that keeps the order
/// of each pair and nothing else. A plan may lack a gradient: then the pass must be found stuck.
class Simulation {
 public:
  Simulation(unsigned seed, bool keeps_back) : random_(seed), workers_(pick(2, 5)) {
    for (std::uint32_t i = 0; i < workers_; ++i) {
      parts_.push_back({PassProtocol(WorkerId{i}, w0), false, 0, 0, 0, {}});
    }
    plan(keeps_back);
  }

  /// Until the initiator is finished. @return false if it never is.
  bool run() {
    send_what_follows(0);
    for (int step = 0; step < 100000; ++step) {
      if (parts_[0].protocol.is_finished()) return true;
      auto const choice = pick(0, 999);
      if (choice < 2) {  // a way there and back takes about a hundred steps
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
  bool keeps_back() const { return kept_back_; }
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
    enum class Kind { gradient, done, query, status, abort } kind;
    std::uint32_t round = 0;
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
    // Somebody waits for a gradient that is nobody's to send. Only those who take part can say so.
    auto& part = parts_[pick(0, 1)];
    ++part.expected;
    kept_back_ = true;
  }

  void post(std::uint32_t from, std::uint32_t to, Frame frame) {
    network_[from * 8 + to].push_back(std::move(frame));
  }
  void carry_out(std::uint32_t self, PassActions const& actions) {
    if (actions.send_done) {
      CHECK(parts_[self].is_complete());
      post(self, 0, {Frame::Kind::done, 0, parts_[self].protocol.own_status(0)});
    }
    for (auto to : actions.abort) post(self, to.value, {Frame::Kind::abort});
  }
  void send_what_follows(std::uint32_t self) {
    auto& part = parts_[self];
    while (part.sent < part.plan.size() && part.plan[part.sent].after <= part.worked) {
      auto const to = part.plan[part.sent++].to;
      part.protocol.gradient_sent(WorkerId{to});
      post(self, to, {Frame::Kind::gradient});
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
    auto status = parts_[self].protocol.own_status(round);
    status.is_idle = parts_[self].inbox == 0;
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
        part.protocol.gradient_received(WorkerId{from});
        ++part.inbox;
        break;
      case Frame::Kind::done:
        carry_out(to, part.protocol.done(WorkerId{from}, std::move(frame.status)));
        break;
      case Frame::Kind::query:  // unknown to who has not joined yet, or has finished
        if (part.has_joined && !part.protocol.is_finished()) {
          post(to, from, {Frame::Kind::status, 0, status_of(to, frame.round)});
        }
        break;
      case Frame::Kind::status:
        carry_out(to, part.protocol.status(WorkerId{from}, std::move(frame.status)));
        break;
      case Frame::Kind::abort: carry_out(to, part.protocol.aborted()); break;
    }
  }
  void look_at_the_end() {
    auto const& protocol = parts_[0].protocol;
    if (protocol.is_finished() && !protocol.error()) CHECK(everything_is_done());
  }

  std::mt19937 random_;
  std::uint32_t workers_;
  std::size_t fuel_ = 25;
  bool kept_back_ = false;
  std::vector<Part> parts_;
  std::deque<Frame> network_[64];
};

}  // namespace

TEST_CASE("at random: a pass ends when every part is complete, and is never found stuck") {
  for (unsigned seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    Simulation simulation(seed, false);
    REQUIRE(simulation.run());
    CHECK_FALSE(simulation.error());
    CHECK(simulation.everything_is_done());
  }
}

TEST_CASE("at random: a pass that lacks a gradient is always found stuck") {
  for (unsigned seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    Simulation simulation(seed, true);
    REQUIRE(simulation.run());
    REQUIRE(simulation.error());
    CHECK((simulation.error()->code == errc::pass_stuck));
    CHECK_FALSE(simulation.everything_is_done());
  }
}
