#include <distgrad/engine/discovery_protocol.hpp>

#include "protocol_words.hpp"

#include <doctest/doctest.h>

namespace discovery_protocol_tests {

using namespace protocol_words;

namespace {

struct Discovery : DiscoveryProtocol {
  using DiscoveryProtocol::DiscoveryProtocol;

  /// A whole question: `reached` is what its walk led to.
  DiscoveryActions ask(WorkerId from, std::uint32_t number, Messages const& messages,
                       Reached reached = {}) {
    discover(from, number, messages);
    return expanded(from, number, std::move(reached));
  }
};

Discovery initiator() { return {w0, w0}; }
Discovery participant() { return {w1, w0}; }

Reached one(WorkerId worker, std::uint64_t number = 1) {
  return {{worker, {sent_by(worker, number)}}};
}
bool only_asks(DiscoveryActions const& a, Ids const& workers) {
  Ids asked;
  for (auto const& discover : a.discover) asked.push_back(discover.to);
  return asked == workers && a.discovered.empty() && !a.finished;
}
bool only_answers(DiscoveryActions const& a, WorkerId to, std::uint32_t number,
                  std::set<WorkerId> const& participants) {
  return a.discover.empty() && !a.finished && a.discovered.size() == 1 &&
         a.discovered[0].to == to && a.discovered[0].number == number &&
         a.discovered[0].participants == participants;
}

}  // namespace

TEST_CASE("roots that reach nobody are discovered at once, without a message") {
  auto pass = initiator();
  auto const actions = pass.start({});
  CHECK(actions.finished);
  CHECK(actions.discover.empty());
  CHECK(actions.discovered.empty());
  CHECK(pass.is_finished());
  CHECK(pass.participants().empty());
}

TEST_CASE("roots that reach others ask each of them once, with all that was reached there") {
  auto pass = initiator();
  Messages const three{sent_by(w1, 1), sent_by(w1, 2), sent_by(w1, 3)};
  auto const actions = pass.start({{w1, three}, {w2, {sent_by(w2, 9)}}});
  REQUIRE(only_asks(actions, {w1, w2}));
  CHECK((actions.discover[0].messages == three));
  CHECK((actions.discover[1].messages == Messages{sent_by(w2, 9)}));
  CHECK(actions.discover[0].number != actions.discover[1].number);
  CHECK_FALSE(pass.is_finished());
  CHECK(pass.asked() == std::set{w1, w2});
}

TEST_CASE("a question whose walk reaches nobody is answered at once") {
  auto part = participant();
  CHECK((part.discover(w0, 7, {sent_by(w1, 1), sent_by(w1, 2)}) ==
         Messages{sent_by(w1, 1), sent_by(w1, 2)}));
  CHECK(only_answers(part.expanded(w0, 7, {}), w0, 7, {w1}));
  CHECK((part.active() == std::set{sent_by(w1, 1), sent_by(w1, 2)}));
}

TEST_CASE("a question whose walk reaches others is answered when they have answered") {
  auto part = participant();
  auto const actions =
      part.ask(w0, 7, {sent_by(w1, 1)}, {{w2, {sent_by(w2, 1)}}, {w3, {sent_by(w3, 1)}}});
  REQUIRE(only_asks(actions, {w2, w3}));
  CHECK(is_nothing(part.discovered(actions.discover[0].number, {w2})));
  CHECK(only_answers(part.discovered(actions.discover[1].number, {w3}), w0, 7, {w1, w2, w3}));
}

TEST_CASE("who waits for answers answers another question at once, after its own questions") {
  auto part = participant();
  auto const first = part.ask(w0, 7, {sent_by(w1, 1)}, one(w2));
  REQUIRE(only_asks(first, {w2}));
  // The same number from another worker is another question.
  auto const second = part.ask(w2, 7, {sent_by(w1, 2)}, one(w3));
  REQUIRE(second.discover.size() == 1);
  CHECK(second.discover[0].to == w3);
  CHECK(second.discover[0].number != first.discover[0].number);
  REQUIRE(second.discovered.size() == 1);
  CHECK(second.discovered[0].to == w2);
  // Then it waits for both before it answers the first.
  CHECK(is_nothing(part.discovered(first.discover[0].number, {w2})));
  CHECK(only_answers(part.discovered(second.discover[0].number, {w3}), w0, 7, {w1, w2, w3}));
}

TEST_CASE("who has answered can be asked again, and waits again") {
  auto part = participant();
  auto const first = part.ask(w0, 1, {sent_by(w1, 1)}, one(w2));
  CHECK(only_answers(part.discovered(first.discover[0].number, {w2}), w0, 1, {w1, w2}));
  auto const second = part.ask(w3, 1, {sent_by(w1, 2)}, one(w2, 2));
  REQUIRE(only_asks(second, {w2}));
  CHECK(only_answers(part.discovered(second.discover[0].number, {w2}), w3, 1, {w1, w2}));
}

TEST_CASE("an initiator that is asked answers at once, and is no participant") {
  for (bool reaches : {false, true}) {
    auto pass = initiator();
    auto const start = pass.start(one(w1));
    auto const actions = pass.ask(w1, 3, {sent_by(w0, 5)}, reaches ? one(w2) : Reached{});
    CHECK(actions.discover.size() == std::size_t(reaches));
    REQUIRE(actions.discovered.size() == 1);
    CHECK(actions.discovered[0].to == w1);
    CHECK(actions.discovered[0].participants.empty());
    CHECK_FALSE(actions.finished);
    auto const end = pass.discovered(start.discover[0].number, {w1, w0});
    CHECK(end.finished == !reaches);
    if (reaches) CHECK(pass.discovered(actions.discover[0].number, {w2}).finished);
    CHECK(pass.is_finished());
    CHECK(pass.participants() == (reaches ? std::set{w1, w2} : std::set{w1}));
    CHECK((pass.active() == std::set{sent_by(w0, 5)}));
  }
}

TEST_CASE("an initiator is finished with the last answer it waits for") {
  auto pass = initiator();
  auto const start = pass.start({{w1, {sent_by(w1, 1)}}, {w2, {sent_by(w2, 1)}}});
  CHECK(is_nothing(pass.discovered(start.discover[1].number, {w2, w3})));
  CHECK_FALSE(pass.is_finished());
  auto const end = pass.discovered(start.discover[0].number, {w1, w3});
  CHECK(end.finished);
  CHECK(end.discover.empty());
  CHECK(end.discovered.empty());
  CHECK(pass.participants() == std::set{w1, w2, w3});
}

TEST_CASE("an answer that comes again is not counted again") {
  auto pass = initiator();
  auto const start = pass.start({{w1, {sent_by(w1, 1)}}, {w2, {sent_by(w2, 1)}}});
  auto const first = start.discover[0].number, second = start.discover[1].number;
  CHECK(is_nothing(pass.discovered(first, {w1})));
  CHECK(is_nothing(pass.discovered(first, {w1})));
  CHECK_FALSE(pass.is_finished());
  CHECK(pass.discovered(second, {w2}).finished);
  CHECK(is_nothing(pass.discovered(second, {w2})));
}

TEST_CASE("an answer to what nobody asked changes nothing") {
  auto pass = initiator();
  pass.start(one(w1));
  CHECK(is_nothing(pass.discovered(99, {w3})));
  CHECK(pass.participants().empty());
  auto part = participant();
  CHECK(is_nothing(part.discovered(1, {w3})));
}

TEST_CASE("a question that comes again is not walked again, and answered alike") {
  auto part = participant();
  CHECK(only_answers(part.ask(w0, 7, {sent_by(w1, 1)}), w0, 7, {w1}));
  CHECK(part.discover(w0, 7, {sent_by(w1, 1)}).empty());
  CHECK(only_answers(part.expanded(w0, 7, {}), w0, 7, {w1}));
}

TEST_CASE("a question that comes again while its answer is due is not answered early") {
  auto part = participant();
  auto const actions = part.ask(w0, 7, {sent_by(w1, 1)}, one(w2));
  CHECK(part.discover(w0, 7, {sent_by(w1, 1)}).empty());
  CHECK(is_nothing(part.expanded(w0, 7, {})));
  CHECK(only_answers(part.discovered(actions.discover[0].number, {w2}), w0, 7, {w1, w2}));
  CHECK(is_nothing(part.discovered(actions.discover[0].number, {w2})));
}

TEST_CASE("a send function that was asked about before is not walked again") {
  auto part = participant();
  part.ask(w0, 1, {sent_by(w1, 1)});
  CHECK((part.discover(w2, 1, {sent_by(w1, 1), sent_by(w1, 2)}) == Messages{sent_by(w1, 2)}));
  CHECK(only_answers(part.expanded(w2, 1, {}), w2, 1, {w1}));
  CHECK((part.active() == std::set{sent_by(w1, 1), sent_by(w1, 2)}));
}

TEST_CASE("a message named twice in one question counts once") {
  auto part = participant();
  CHECK((part.discover(w0, 1, {sent_by(w1, 1), sent_by(w1, 1)}) == Messages{sent_by(w1, 1)}));
}

}  // namespace discovery_protocol_tests
