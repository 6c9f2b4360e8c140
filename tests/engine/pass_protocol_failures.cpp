#include <distgrad/engine/pass_protocol.hpp>

#include "protocol_words.hpp"

#include <doctest/doctest.h>

#include <utility>

namespace pass_protocol_failures_tests {

using namespace protocol_words;

namespace {

WireError lost() { return {errc::peer_lost, "w0", {}, {}, "lost"}; }

/// An initiator whose discovery found w1 and w2; it asked w1 alone and sent w3 a gradient.
PassProtocol initiator(bool commits_globally = false) {
  auto pass = part_of(w0, commits_globally);
  auto const start = pass.start({{w1, {sent_by(w1, 1)}}});
  pass.discovered(start.discovery.discover.at(0).number, {w1, w2});
  pass.gradient_sent(w3);
  return pass;
}
/// w1, which asked w2 and sent gradients to w3.
PassProtocol participant(bool commits_globally = false) {
  auto part = part_of(w1, commits_globally);
  part.discover(w0, 1, {sent_by(w1, 1)});
  part.expanded(w0, 1, {{w2, {sent_by(w2, 1)}}});
  part.gradient_sent(w3);
  return part;
}

bool only_aborts(PassActions const& a, Ids const& workers) {
  auto rest = a;
  rest.abort.clear();
  rest.stop = false;
  return a.stop && a.abort == workers && is_nothing(rest);
}
bool only_answers(PassActions const& a, Ids const& workers) {
  auto rest = a;
  rest.aborted.clear();
  return a.aborted == workers && is_nothing(rest);
}

}  // namespace

// --- a failure -----------------------------------------------------------------------------------

TEST_CASE("a failure of a participant goes to the initiator, and the part waits for its word") {
  for (bool complete : {false, true}) {
    auto part = participant(complete);
    if (complete) part.local_part_complete();
    auto const actions = part.failed(broken());
    CHECK(actions.stop);
    CHECK(actions.send_failed);
    CHECK_FALSE(actions.finished);
    CHECK_FALSE(actions.send_done);
    CHECK(actions.abort.empty());
    CHECK_FALSE(part.is_running());
    CHECK_FALSE(part.is_finished());
    REQUIRE(part.error());
    CHECK(part.error()->text == "broken");
    CHECK(is_nothing(part.stopped()));
  }
}

TEST_CASE("a failure of the initiator, or reported to it, aborts all who take part") {
  for (bool waiting : {false, true}) {
    auto pass = initiator();
    if (waiting) CHECK(is_nothing(pass.local_part_complete()));
    CHECK(only_aborts(pass.failed(broken()), {w1, w2, w3}));
    CHECK(pass.unanswered() == std::set{w1, w2, w3});
    CHECK(pass.error()->function == "MulBackward0");
    CHECK_FALSE(pass.is_finished());
  }
}

TEST_CASE("a failure during discovery aborts those who were asked") {
  auto pass = part_of(w0);
  pass.start({{w1, {sent_by(w1, 1)}}, {w2, {sent_by(w2, 1)}}});
  CHECK(only_aborts(pass.failed(broken()), {w1, w2}));
}

TEST_CASE("a failure while others commit aborts them all the same") {
  auto pass = initiator(true);
  pass.local_part_complete();
  for (auto worker : {w1, w2, w3}) pass.done(worker, last(0, 1));
  pass.committed(w1);
  CHECK(only_aborts(pass.failed(broken()), {w1, w2, w3}));
  CHECK(is_nothing(pass.committed(w2)));
  CHECK(is_nothing(pass.committed(w3)));
  CHECK_FALSE(pass.is_finished());
}

TEST_CASE("an initiator is finished when it has stopped and all it aborted have answered") {
  for (bool stops_first : {false, true}) {
    auto pass = initiator();
    pass.failed(broken());
    if (stops_first) CHECK(is_nothing(pass.stopped()));
    CHECK(is_nothing(pass.aborted(w2, {})));
    CHECK(is_nothing(pass.aborted(w2, {})));
    CHECK(is_nothing(pass.aborted(w1, {})));
    CHECK(pass.unanswered() == std::set{w3});
    auto const answered = pass.aborted(w3, {});
    if (stops_first) {
      CHECK(only_finishes(answered));
    } else {
      CHECK(is_nothing(answered));
      CHECK(only_finishes(pass.stopped()));
    }
    CHECK(pass.error()->text == "broken");
  }
}

TEST_CASE("an initiator alone that failed is finished when it has stopped") {
  auto pass = part_of(w0);
  pass.start({});
  CHECK(only_aborts(pass.failed(broken()), {}));
  CHECK_FALSE(pass.is_finished());
  CHECK(only_finishes(pass.stopped()));
}

TEST_CASE("an initiator keeps what the aborted said last") {
  auto pass = initiator();
  pass.failed(broken());
  PassStatus words = last(0, 0);
  words.node = "MmBackward0";
  words.awaited.push_back({sent_by(w2, 1), w1});
  pass.aborted(w2, words);
  pass.aborted(w2, {});
  CHECK(pass.last_words().at(w2).node == "MmBackward0");
  CHECK((pass.last_words().at(w2).awaited == words.awaited));
}

// --- an abort ------------------------------------------------------------------------------------

TEST_CASE("an aborted participant aborts those it asked or sent gradients to") {
  for (int state = 0; state < 3; ++state) {
    CAPTURE(state);
    auto part = participant(state == 1);
    if (state == 1) part.local_part_complete();
    if (state == 2) part.failed(broken());
    CHECK(only_aborts(part.abort(w0), {w2, w3}));
    CHECK_FALSE(part.is_finished());
    REQUIRE(part.error());
    CHECK((part.error()->code == (state == 2 ? errc::pass_failed : errc::pass_aborted)));
  }
}

TEST_CASE("an abort goes neither back to where it came from nor to the initiator") {
  auto part = participant();
  part.gradient_sent(w0);
  CHECK(only_aborts(part.abort(w2), {w3}));
  CHECK(is_nothing(part.stopped()));
  auto const end = part.aborted(w3, {});
  CHECK(end.finished);
  CHECK(end.aborted == Ids{w2});
}

TEST_CASE("an aborted participant answers when it has stopped and all below it have answered") {
  for (bool stops_first : {false, true}) {
    auto part = participant();
    part.abort(w0);
    if (stops_first) CHECK(is_nothing(part.stopped()));
    CHECK(is_nothing(part.aborted(w2, {})));
    auto end = part.aborted(w3, {});
    if (!stops_first) {
      CHECK(is_nothing(end));
      end = part.stopped();
    }
    CHECK(end.finished);
    CHECK(end.aborted == Ids{w0});
    CHECK_FALSE(end.send_failed);
    CHECK(part.is_finished());
  }
}

TEST_CASE("an aborted participant answers others that abort it at once") {
  auto part = participant();
  part.abort(w0);
  CHECK(only_answers(part.abort(w3), {w3}));
  part.stopped();
  part.aborted(w2, {});
  auto const end = part.aborted(w3, {});
  CHECK(end.finished);
  CHECK(end.aborted == Ids{w0});
}

TEST_CASE("an abort that reaches the initiator, or who is finished, is answered and no more") {
  auto pass = initiator();
  CHECK(only_answers(pass.abort(w1), {w1}));
  CHECK(pass.is_running());
  auto part = participant();
  part.local_part_complete();
  CHECK(only_answers(part.abort(w0), {w0}));
}

TEST_CASE("an answer of who was not aborted changes nothing") {
  auto part = participant();
  CHECK(is_nothing(part.aborted(w2, {})));
  CHECK(is_nothing(part.stopped()));
  part.abort(w0);
  part.stopped();
  CHECK(is_nothing(part.aborted(w0, {})));
  CHECK(part.unanswered() == std::set{w2, w3});
}

// --- the end -------------------------------------------------------------------------------------

TEST_CASE("the first error stays, and nothing but an answer to an abort follows the end") {
  for (bool starts : {false, true}) {
    auto pass = starts ? initiator() : participant();
    pass.failed(broken());
    if (!starts) pass.abort(w0);
    pass.stopped();
    for (auto worker : {w1, w2, w3}) pass.aborted(worker, {});
    REQUIRE(pass.is_finished());
    CHECK(is_nothing(pass.start({{w1, {sent_by(w1, 1)}}})));
    CHECK(pass.discover(w2, 9, {sent_by(w1, 9)}).empty());
    CHECK(is_nothing(pass.expanded(w2, 9, {{w3, {sent_by(w3, 1)}}})));
    CHECK(is_nothing(pass.discovered(1, {w1})));
    CHECK(is_nothing(pass.failed({errc::timeout, {}, {}, {}, "late"})));
    CHECK(is_nothing(pass.stopped()));
    CHECK(is_nothing(pass.aborted(w2, {})));
    CHECK(is_nothing(pass.local_part_complete()));
    CHECK(is_nothing(pass.done(w2, last(0, 1))));
    CHECK(is_nothing(pass.commit()));
    CHECK(is_nothing(pass.committed(w2)));
    CHECK(is_nothing(pass.status(w2, idle(1, 0, 1))));
    CHECK(is_nothing(pass.tick()));
    CHECK(is_nothing(pass.peer_lost(w0, lost())));
    CHECK(is_nothing(pass.peer_lost(w2, lost())));
    CHECK(is_nothing(pass.abandon(lost())));
    CHECK(pass.error()->text == "broken");
  }
}

TEST_CASE("a part that failed takes no more questions, gradients' ends or failures") {
  for (bool starts : {false, true}) {
    auto pass = starts ? initiator() : participant();
    pass.failed(broken());
    CHECK(pass.discover(w2, 9, {sent_by(w1, 9)}).empty());
    CHECK(is_nothing(pass.expanded(w2, 9, {{w3, {sent_by(w3, 1)}}})));
    CHECK(is_nothing(pass.discovered(1, {w1})));
    CHECK(is_nothing(pass.local_part_complete()));
    CHECK(is_nothing(pass.done(w2, last(0, 1))));
    CHECK(is_nothing(pass.commit()));
    CHECK(is_nothing(pass.failed({errc::timeout, {}, {}, {}, "late"})));
    CHECK(pass.error()->text == "broken");
  }
}

// --- a lost worker -------------------------------------------------------------------------------

TEST_CASE("the loss of a worker that does not take part changes nothing") {
  auto part = participant();
  CHECK(is_nothing(part.peer_lost(WorkerId{9}, lost())));
  CHECK(part.is_running());
  auto pass = initiator();
  CHECK(is_nothing(pass.peer_lost(WorkerId{9}, lost())));
  CHECK(pass.is_running());
}

TEST_CASE("the loss of a worker that takes part fails the pass, and nobody waits for it") {
  auto pass = initiator();
  CHECK(only_aborts(pass.peer_lost(w2, lost()), {w1, w3}));
  CHECK((pass.error()->code == errc::peer_lost));
  pass.stopped();
  pass.aborted(w1, {});
  CHECK(only_finishes(pass.aborted(w3, {})));

  auto part = participant();
  auto const failed = part.peer_lost(w2, lost());
  CHECK(failed.send_failed);
  CHECK(failed.stop);
  CHECK(failed.abort.empty());
}

TEST_CASE("the loss of the initiator ends a part at once, and those below it") {
  for (int state = 0; state < 4; ++state) {
    CAPTURE(state);
    auto part = participant(state == 1);
    if (state == 1) part.local_part_complete();
    if (state == 2) part.failed(broken());
    if (state == 3) part.abort(w2);
    auto const actions = part.peer_lost(w0, lost());
    CHECK(actions.stop);
    CHECK(actions.finished);
    CHECK(actions.abort == (state == 3 ? Ids{} : Ids{w2, w3}));
    CHECK(actions.aborted == (state == 3 ? Ids{w2} : Ids{}));
    CHECK(part.is_finished());
  }
}

TEST_CASE("who aborts does not wait for a worker that is lost meanwhile") {
  auto pass = initiator();
  pass.failed(broken());
  pass.stopped();
  pass.aborted(w1, {});
  CHECK(is_nothing(pass.peer_lost(w1, lost())));
  CHECK(is_nothing(pass.peer_lost(w3, lost())));
  CHECK(only_finishes(pass.peer_lost(w2, lost())));
  CHECK(pass.error()->text == "broken");
}

TEST_CASE("who was aborted by a worker that is lost does not answer it") {
  auto part = participant();
  part.abort(w2);
  CHECK(is_nothing(part.peer_lost(w2, lost())));
  part.stopped();
  auto const end = part.aborted(w3, {});
  CHECK(end.finished);
  CHECK(end.aborted.empty());
}

TEST_CASE("who was asked by a worker that is lost, or got gradients of it, fails") {
  for (bool asked : {false, true}) {
    auto part = part_of(w1);
    if (asked) {
      part.discover(w2, 1, {sent_by(w1, 1)});
    } else {
      part.gradient_received(w2, sent_by(w1, 1));
    }
    CHECK(part.involves(w2));
    CHECK(part.peer_lost(w2, lost()).send_failed);
  }
}

TEST_CASE("an initiator that hears only after its loss that a worker takes part fails then") {
  auto pass = part_of(w0);
  auto const number = pass.start({{w1, {sent_by(w1, 1)}}}).discovery.discover.at(0).number;
  CHECK(is_nothing(pass.peer_lost(w2, lost())));
  CHECK(is_nothing(pass.peer_lost(w3, lost())));
  CHECK(only_aborts(pass.discovered(number, {w1, w2}), {w1}));
  CHECK((pass.error()->code == errc::peer_lost));

  auto fast = part_of(w0);
  fast.gradient_sent(w1);
  CHECK(is_nothing(fast.peer_lost(w2, lost())));
  CHECK(only_aborts(fast.done(w1, last(1, 1, {w2})), {w1}));
}

TEST_CASE("who reports a failure is aborted, whether the initiator knew of it or not") {
  auto pass = initiator();
  CHECK(only_aborts(pass.failed(WorkerId{7}, broken()), {w1, w2, w3, WorkerId{7}}));
  CHECK(is_nothing(pass.failed(w2, broken())));
  auto const late = pass.failed(WorkerId{8}, broken());
  CHECK(late.abort == Ids{WorkerId{8}});
  CHECK(pass.unanswered() == std::set{w1, w2, w3, WorkerId{7}, WorkerId{8}});

  auto part = participant();
  CHECK(is_nothing(part.failed(w2, broken())));
  CHECK(part.is_running());
}

TEST_CASE("workers that a done names while the initiator aborts are aborted too, once") {
  auto pass = part_of(w0);
  pass.gradient_sent(w1);
  CHECK(is_nothing(pass.peer_lost(w3, lost())));
  pass.failed(broken());
  auto const late = pass.done(w1, last(3, 1, {w0, w1, w2, w3}));
  CHECK(late.abort == Ids{w2});
  CHECK(is_nothing(pass.done(w1, last(3, 1, {w0, w1, w2, w3}))));
  CHECK(pass.unanswered() == std::set{w1, w2});
}

// --- an engine that ends -------------------------------------------------------------------------

TEST_CASE("a part that is abandoned ends at once and aborts those below it") {
  auto part = participant();
  auto const actions = part.abandon(lost());
  CHECK(actions.stop);
  CHECK(actions.finished);
  CHECK(actions.abort == Ids{w2, w3});
  CHECK((part.error()->code == errc::peer_lost));
}

TEST_CASE("an initiator that is abandoned aborts all who take part") {
  auto pass = initiator();
  auto const actions = pass.abandon(lost());
  CHECK(actions.finished);
  CHECK(actions.abort == Ids{w1, w2, w3});
}

TEST_CASE("an abort that waits too long is given up, with its first error and who did not answer") {
  auto pass = initiator();
  pass.failed(broken());
  pass.stopped();
  pass.aborted(w2, {});
  auto const actions = pass.abandon({});
  CHECK(actions.finished);
  CHECK(actions.abort.empty());
  CHECK(pass.error()->text == "broken");
  CHECK(pass.unanswered() == std::set{w1, w3});
}

}  // namespace pass_protocol_failures_tests
