#include <distgrad/engine/standstill_detector.hpp>

#include "protocol_words.hpp"

#include <doctest/doctest.h>

namespace standstill_detector_tests {

using namespace protocol_words;

namespace {

/// The initiator w0 sent one gradient to w1, which is to have sent one on to w2.
struct Stuck {
  StandstillDetector detector;
  std::set<WorkerId> asked{w0, w1, w2};

  static PassStatus own() { return idle(0, 1, 0, {w1}); }
  static PassStatus one() { return idle(0, 1, 1, {w2}); }
  static PassStatus two() { return idle(0, 0, 1); }
  static PassStatus busy(PassStatus status) {
    status.is_idle = false;
    return status;
  }
  bool answer(WorkerId worker, PassStatus status, std::uint32_t round) {
    status.round = round;
    return detector.answer(worker, status);
  }
  /// One round with these answers. @return whether the last completed the proof.
  bool round(PassStatus one = Stuck::one(), PassStatus two = Stuck::two(),
             PassStatus own = Stuck::own()) {
    auto const number = detector.begin_round(asked);
    REQUIRE(number != 0);
    CHECK_FALSE(answer(w0, own, number));
    CHECK_FALSE(answer(w1, one, number));
    return answer(w2, two, number);
  }
};

}  // namespace

TEST_CASE("two equal rounds of idle workers with nothing on its way prove a standstill") {
  Stuck s;
  CHECK_FALSE(s.round());
  CHECK(s.round());
  CHECK(s.detector.answers().size() == 3);
}

TEST_CASE("no single round proves a standstill, and no two that differ") {
  Stuck s;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    // Gradients went to and fro between w1 and w2 since the last round.
    CHECK_FALSE(s.round(idle(0, i, i, {w2}), idle(0, i - 1, i)));
  }
}

TEST_CASE("a gradient on its way is no standstill") {
  Stuck s;
  for (int i = 0; i < 5; ++i) CHECK_FALSE(s.round(Stuck::one(), idle(0, 0, 0)));
}

TEST_CASE("a gradient that was sent since the first of two rounds is no standstill") {
  Stuck s;
  CHECK_FALSE(s.round(idle(0, 0, 1, {w2}), Stuck::two()));
  CHECK_FALSE(s.round(idle(0, 1, 1, {w2}), Stuck::two()));
}

TEST_CASE("a busy worker is no standstill") {
  for (int i = 0; i < 5; ++i) {
    CHECK_FALSE(Stuck().round(Stuck::busy(Stuck::one())));
    CHECK_FALSE(Stuck().round(Stuck::one(), Stuck::busy(Stuck::two())));
    CHECK_FALSE(Stuck().round(Stuck::one(), Stuck::two(), Stuck::busy(Stuck::own())));
  }
}

TEST_CASE("workers that were busy in one of two rounds need another") {
  for (bool in_first : {false, true}) {
    Stuck s;
    if (!in_first) CHECK_FALSE(s.round());
    CHECK_FALSE(s.round(Stuck::busy(Stuck::one())));
    CHECK_FALSE(s.round());
    CHECK(s.round());
  }
}

TEST_CASE("a worker that was not asked may still be at work") {
  Stuck s;
  for (int i = 0; i < 5; ++i) CHECK_FALSE(s.round(Stuck::one(), idle(0, 0, 1, {w3})));
  s.detector.done(w3, last(0, 0));
  CHECK_FALSE(s.round(Stuck::one(), idle(0, 0, 1, {w3})));
  CHECK(s.round(Stuck::one(), idle(0, 0, 1, {w3})));
}

TEST_CASE("a round is complete when all have answered, the one who asks included") {
  Stuck s;
  CHECK_FALSE(s.round());
  auto const round = s.detector.begin_round(s.asked);
  CHECK_FALSE(s.answer(w1, Stuck::one(), round));
  CHECK_FALSE(s.answer(w2, Stuck::two(), round));
  CHECK_FALSE(s.answer(w2, Stuck::two(), round));  // again
  CHECK_FALSE(s.answer(w3, Stuck::two(), round));  // was not asked
  CHECK(s.answer(w0, Stuck::own(), round));
}

TEST_CASE("an answer to an earlier round is ignored") {
  Stuck s;
  CHECK_FALSE(s.round());
  auto const round = s.detector.begin_round(s.asked);
  CHECK_FALSE(s.answer(w0, Stuck::own(), round));
  CHECK_FALSE(s.answer(w1, Stuck::one(), round));
  CHECK_FALSE(s.answer(w2, Stuck::two(), round - 1));
  CHECK(s.answer(w2, Stuck::two(), round));
  CHECK_FALSE(s.answer(w2, Stuck::two(), round));
}

TEST_CASE("no round begins while answers are on their way, so slow answers count") {
  Stuck s;
  CHECK_FALSE(s.round());
  auto const round = s.detector.begin_round(s.asked);
  CHECK(s.detector.begin_round(s.asked) == 0);
  CHECK_FALSE(s.answer(w0, Stuck::own(), round));
  CHECK_FALSE(s.answer(w1, Stuck::one(), round));
  CHECK(s.detector.begin_round(s.asked) == 0);
  CHECK(s.answer(w2, Stuck::two(), round));
}

TEST_CASE("workers that are done are not asked: their last counts stand") {
  Stuck s;
  s.asked = {w0};
  s.detector.done(w1, last(1, 1, {w0}));
  s.detector.done(w1, last(5, 5, {w0}));  // again
  for (int round = 1; round <= 2; ++round) {
    auto const number = s.detector.begin_round(s.asked);
    CHECK_FALSE(s.answer(w1, idle(0, 1, 1), number));
    CHECK(s.answer(w0, idle(0, 1, 1, {w1}), number) == (round == 2));
  }
}

TEST_CASE("what a worker that is done sent, and nobody received, is still on its way") {
  Stuck s;
  s.asked = {w0};
  s.detector.done(w1, last(1, 1, {w0}));
  for (int round = 0; round < 5; ++round) {
    CHECK_FALSE(s.answer(w0, Stuck::own(), s.detector.begin_round(s.asked)));
  }
}

TEST_CASE("a DONE takes the proof back to its beginning") {
  for (bool during_a_round : {false, true}) {
    Stuck s;
    CHECK_FALSE(s.round());
    if (during_a_round) {
      auto const open = s.detector.begin_round(s.asked);
      CHECK_FALSE(s.answer(w0, Stuck::own(), open));
      s.detector.done(w2, last(0, 1));
      CHECK_FALSE(s.answer(w1, Stuck::one(), open));
    } else {
      s.detector.done(w2, last(0, 1));
    }
    s.asked = {w0, w1};
    for (int round = 1; round <= 2; ++round) {
      auto const number = s.detector.begin_round(s.asked);
      REQUIRE(number != 0);
      CHECK_FALSE(s.answer(w0, Stuck::own(), number));
      CHECK(s.answer(w1, Stuck::one(), number) == (round == 2));
    }
  }
}

}  // namespace standstill_detector_tests
