#include <distgrad/engine/pass_protocol.hpp>

#include "protocol_words.hpp"

#include <doctest/doctest.h>

namespace pass_protocol_tests {

using namespace protocol_words;

namespace {

PassProtocol initiator(bool commits_globally = false) { return part_of(w0, commits_globally); }
PassProtocol participant(bool commits_globally = false) { return part_of(w1, commits_globally); }

/// An initiator whose discovery found these participants. It asked w1 alone.
PassProtocol after_discovery(std::set<WorkerId> const& participants,
                             bool commits_globally = false) {
  auto pass = initiator(commits_globally);
  auto const start = pass.start({{w1, {sent_by(w1, 1)}}});
  pass.discovered(start.discovery.discover.at(0).number, participants);
  REQUIRE(pass.discovery().is_finished());
  return pass;
}

}  // namespace

// --- discovery -----------------------------------------------------------------------------------

TEST_CASE("a pass that stays on one worker sends nothing") {
  for (bool globally : {false, true}) {
    auto pass = initiator(globally);
    auto const start = pass.start({});
    CHECK(is_silent(start));
    CHECK(start.discovery.finished);
    CHECK_FALSE(start.finished);
    CHECK(only_finishes(pass.local_part_complete()));
    CHECK_FALSE(pass.error());
  }
}

TEST_CASE("a pass asks and answers as its discovery says") {
  auto pass = initiator(), part = participant();
  auto const start = pass.start({{w1, {sent_by(w1, 1)}}});
  REQUIRE(start.discovery.discover.size() == 1);
  auto const& question = start.discovery.discover[0];
  CHECK((part.discover(w0, question.number, question.messages) == question.messages));
  auto const answer = part.expanded(w0, question.number, {});
  REQUIRE(answer.discovery.discovered.size() == 1);
  auto const end = pass.discovered(question.number, answer.discovery.discovered[0].participants);
  CHECK(end.discovery.finished);
  CHECK_FALSE(end.finished);
  CHECK(pass.participants() == std::set{w1});
}

TEST_CASE("who was asked and who takes part are known before a gradient moves") {
  auto const pass = after_discovery({w1, w2});
  CHECK(pass.peers() == std::set{w1});
  CHECK(pass.participants() == std::set{w1, w2});
  CHECK(pass.involves(w2));
  CHECK_FALSE(pass.involves(w3));
}

TEST_CASE("a worker knows whom it waits for: the initiator, whom it asked, whom it sent to") {
  auto part = participant();
  CHECK(part.involves(w0));
  CHECK_FALSE(part.involves(w2));
  part.discover(w0, 1, {sent_by(w1, 1)});
  part.expanded(w0, 1, {{w2, {sent_by(w2, 1)}}});
  CHECK(part.involves(w2));
  CHECK_FALSE(part.involves(w3));
  part.gradient_sent(w3);
  CHECK(part.involves(w3));
  CHECK(part.peers() == std::set{w2, w3});
}

// --- execution -----------------------------------------------------------------------------------

TEST_CASE("a participant whose part is complete says so and is finished") {
  auto part = participant();
  CHECK(part.gradient_received(w0, sent_by(w1, 1)));
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

TEST_CASE("a gradient that comes again is told apart") {
  auto part = participant();
  CHECK(part.gradient_received(w0, sent_by(w1, 1)));
  CHECK(part.gradient_received(w0, sent_by(w1, 2)));
  CHECK_FALSE(part.gradient_received(w0, sent_by(w1, 1)));
  CHECK(part.own_status(0).received == 2);
}

TEST_CASE("an initiator waits for all that the discovery found, whoever sends them gradients") {
  auto pass = after_discovery({w1, w2});
  pass.gradient_sent(w1);
  CHECK(is_nothing(pass.local_part_complete()));
  CHECK(is_nothing(pass.done(w1, last(1, 1, {w2}))));
  CHECK(is_nothing(pass.done(w1, last(1, 1, {w2}))));
  CHECK(only_finishes(pass.done(w2, last(0, 1))));
}

TEST_CASE("without discovery an initiator waits for those it sent gradients to") {
  auto pass = initiator();
  pass.gradient_sent(w1);
  pass.gradient_sent(w2);
  pass.gradient_sent(w1);
  CHECK(is_nothing(pass.local_part_complete()));
  CHECK(is_nothing(pass.done(w2, last(0, 1))));
  CHECK(only_finishes(pass.done(w1, last(0, 2))));
}

TEST_CASE("an initiator whose participants are done before it finishes with its own part") {
  auto pass = after_discovery({w1});
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

TEST_CASE("a participant ignores a DONE, a COMMITTED and a status") {
  auto part = participant(true);
  CHECK(is_nothing(part.done(w2, last(0, 1))));
  CHECK(is_nothing(part.committed(w2)));
  CHECK(is_nothing(part.status(w2, idle(1, 0, 0))));
  CHECK(is_nothing(part.tick()));
  CHECK(part.is_running());
}

TEST_CASE("a status says what was counted") {
  auto part = participant();
  part.gradient_received(w0, sent_by(w1, 1));
  part.gradient_received(w2, sent_by(w1, 2));
  part.gradient_received(w2, sent_by(w1, 2));
  part.gradient_sent(w2);
  auto const status = part.own_status(7);
  CHECK(status.round == 7);
  CHECK_FALSE(status.is_idle);  // the shell knows
  CHECK(status.sent == 1);
  CHECK(status.received == 2);
  CHECK(status.peers == std::set{w2});
}

// --- global commit -------------------------------------------------------------------------------

TEST_CASE("with global commit a participant that is complete waits to be told to commit") {
  auto part = participant(true);
  CHECK(is_nothing(part.commit()));  // not before it is complete
  auto const complete = part.local_part_complete();
  CHECK(complete.send_done);
  CHECK_FALSE(complete.finished);
  CHECK_FALSE(part.is_finished());
  CHECK(is_nothing(part.local_part_complete()));
  auto const end = part.commit();
  CHECK(end.send_committed);
  CHECK(end.finished);
  CHECK_FALSE(end.send_done);
  CHECK(is_nothing(part.commit()));
}

TEST_CASE("with global commit an initiator tells all to commit once all are done, and waits") {
  for (bool initiator_is_last : {false, true}) {
    auto pass = after_discovery({w1, w2}, true);
    if (!initiator_is_last) CHECK(is_nothing(pass.local_part_complete()));
    CHECK(is_nothing(pass.done(w2, last(0, 1))));
    auto done = pass.done(w1, last(1, 1, {w2}));
    if (initiator_is_last) {
      CHECK(is_nothing(done));
      done = pass.local_part_complete();
    }
    CHECK(done.commit == Ids{w1, w2});
    CHECK_FALSE(done.finished);
    CHECK(is_nothing(pass.done(w1, last(1, 1, {w2}))));
    CHECK(is_nothing(pass.committed(w2)));
    CHECK(is_nothing(pass.committed(w2)));
    CHECK_FALSE(pass.is_finished());
    CHECK(only_finishes(pass.committed(w1)));
    CHECK(is_nothing(pass.committed(w1)));
  }
}

TEST_CASE("nobody commits before all are done") {
  auto pass = after_discovery({w1}, true);
  CHECK(is_nothing(pass.committed(w1)));
  CHECK(is_nothing(pass.local_part_complete()));
  CHECK(is_nothing(pass.committed(w1)));
  CHECK_FALSE(pass.is_finished());
}

// --- overlapped ----------------------------------------------------------------------------------

namespace {

constexpr PassOptions overlapped{.is_overlapped = true};

}  // namespace

TEST_CASE("an overlapped pass starts its discovery when it wants to, and once") {
  auto pass = part_of(w0, overlapped);
  CHECK_FALSE(pass.has_started());
  pass.gradient_sent(w1);
  CHECK(pass.start({{w1, {sent_by(w1, 1)}}}).discovery.discover.size() == 1);
  CHECK(pass.has_started());
  CHECK(is_nothing(pass.start({{w1, {sent_by(w1, 1)}}})));
}

TEST_CASE("when the discovery of an overlapped pass is finished, nobody waits for the rest") {
  auto pass = part_of(w0, overlapped);
  auto const start = pass.start({{w1, {sent_by(w1, 1)}}});
  CHECK_FALSE(start.retire);
  pass.gradient_sent(w3);
  auto const end = pass.discovered(start.discovery.discover.at(0).number, {w1, w2});
  CHECK(end.discovery.finished);
  CHECK(end.retire);
  CHECK(end.release == Ids{w1, w2, w3});

  auto alone = part_of(w0, overlapped);
  auto const local = alone.start({});
  CHECK(local.retire);
  CHECK(is_silent(local));
}

TEST_CASE("a discovery before the gradients retires nothing: there is nothing to retire") {
  auto pass = initiator();
  auto const start = pass.start({{w1, {sent_by(w1, 1)}}});
  auto const end = pass.discovered(start.discovery.discover.at(0).number, {w1});
  CHECK_FALSE(end.retire);
  CHECK(end.release.empty());
}

TEST_CASE("a part that is released waits for nothing that does not take part, and once") {
  auto part = part_of(w1, overlapped);
  auto const actions = part.release();
  CHECK(actions.retire);
  CHECK(is_silent(actions));
  CHECK(is_nothing(part.release()));
  part.local_part_complete();
  CHECK(is_nothing(part.release()));
}

TEST_CASE("an overlapped part that is complete still answers questions, until it is dismissed") {
  auto part = part_of(w1, overlapped);
  part.gradient_received(w0, sent_by(w1, 1));
  auto const complete = part.local_part_complete();
  CHECK(complete.send_done);
  CHECK_FALSE(complete.finished);
  CHECK((part.discover(w0, 1, {sent_by(w1, 1)}) == Messages{sent_by(w1, 1)}));
  auto const asked = part.expanded(w0, 1, {{w2, {sent_by(w2, 1)}}});
  REQUIRE(asked.discovery.discover.size() == 1);
  auto const answered = part.discovered(asked.discovery.discover[0].number, {w2});
  CHECK(answered.discovery.discovered.size() == 1);
  CHECK(only_finishes(part.commit()));  // and says nothing: nobody waits for it
}

TEST_CASE("an overlapped pass whose parts are all done ends, discovered or not") {
  for (bool asks : {false, true}) {
    auto pass = part_of(w0, overlapped);
    pass.gradient_sent(w1);
    if (asks) pass.start({{w1, {sent_by(w1, 1)}}});
    CHECK(is_nothing(pass.local_part_complete()));
    CHECK(is_nothing(pass.done(w1, last(1, 1, {w2}))));
    auto const end = pass.done(w2, last(0, 1));
    CHECK(end.finished);
    CHECK(end.commit == Ids{w1, w2});
    CHECK(is_nothing(pass.discovered(1, {w1, w2})));
  }
}

// --- the watchdog --------------------------------------------------------------------------------

TEST_CASE("an initiator asks those who are not done, one round at a time") {
  auto pass = initiator();
  pass.gradient_sent(w1);
  pass.gradient_sent(w2);
  auto const first = pass.tick();
  CHECK(first.query_round == 1);
  CHECK(first.query == Ids{w1, w2});
  CHECK(is_nothing(pass.done(w1, last(0, 1))));
  auto const second = pass.tick();
  CHECK(second.query_round == 2);
  CHECK(second.query == Ids{w2});
}

TEST_CASE("an answer names workers that the next round asks") {
  auto pass = initiator();
  pass.gradient_sent(w1);
  auto const round = pass.tick().query_round;
  CHECK(is_nothing(pass.status(w0, idle(round, 1, 0, {w1}))));
  CHECK(is_nothing(pass.status(w1, idle(round, 1, 1, {w2}))));
  CHECK(pass.tick().query == Ids{w1, w2});
}

TEST_CASE("a standstill ends the pass with what each worker waited for") {
  auto pass = initiator();
  pass.gradient_sent(w1);
  pass.done(w2, last(0, 1));
  for (int round = 1; round <= 2; ++round) {
    auto const asked = pass.tick().query_round;
    REQUIRE(asked != 0);
    auto waiting = idle(asked, 1, 1, {w2});
    waiting.awaited.push_back({sent_by(w1, 77), w3});
    CHECK(is_nothing(pass.status(w1, waiting)));
    auto const actions = pass.status(w0, idle(asked, 1, 0, {w1}));
    if (round == 1) {
      CHECK(is_nothing(actions));
      continue;
    }
    CHECK(actions.stop);
    CHECK(actions.abort == Ids{w1, w2});
    CHECK_FALSE(actions.finished);
  }
  REQUIRE(pass.error());
  CHECK((pass.error()->code == errc::pass_stuck));
  CHECK((pass.last_words().at(w1).awaited.at(0) == AwaitedSend{sent_by(w1, 77), w3}));
}

}  // namespace pass_protocol_tests
