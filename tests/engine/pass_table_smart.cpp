#include <distgrad/engine/pass_table.hpp>

#include "pass_table_rig.hpp"

namespace pass_table_smart_tests {

using namespace pass_table_rig;

namespace {

struct Smart : Fixture {
  Smart() { options.is_smart = true; }

  /// What the gradients of `answer` let this worker send and say, and its own.
  void run_part() {
    receive(0, gradient(answer, {at::ones({2})}));
    host->run_tasks();
    CHECK((kinds_sent_to(w0) == Kinds{FrameKind::gradient, FrameKind::pass_done}));
  }
  bool has_gradient() const { return context->gradient(weight).defined(); }
};

}  // namespace

// --- discovery -----------------------------------------------------------------------------------

TEST_CASE_FIXTURE(Smart, "a question is asked on where the graph leads, and then answered") {
  answer_a_call();
  receive(0, discover({answer}, 7));
  auto const asked = only_sent();
  CHECK(asked.to == w0);
  REQUIRE((asked.message.kind == FrameKind::pass_discover));
  Reader in(asked.message.metadata);
  CHECK(in.id<PassId>() == pass);
  auto const question = distgrad::detail::read_discover(in);
  CHECK((question.messages == std::vector{request}));
  CHECK((question.options == options));

  receive(0, discovered(question.number));
  auto const answered = only_sent();
  REQUIRE((answered.message.kind == FrameKind::pass_discovered));
  Reader words(answered.message.metadata);
  words.id<PassId>();
  auto const found = distgrad::detail::read_discovered(words);
  CHECK(found.number == 7);
  CHECK((found.participants == std::set{WorkerId{1}}));
}

TEST_CASE_FIXTURE(Smart, "a part of a pass runs without the gradients of unused messages") {
  answer_two_calls();
  join();
  run_part();
  CHECK(table->size() == 0);
  CHECK(context->gradient(weight).equal(at::ones({2}).mul(3)));
}

TEST_CASE_FIXTURE(Smart, "a question that comes again during the pass is answered again") {
  join();
  receive(0, discover({answer}));
  CHECK((kinds_sent_to(w0) == Kinds{FrameKind::pass_discovered}));
  run_part();
}

TEST_CASE_FIXTURE(Smart, "gradients that come again during the pass count once") {
  answer_two_calls();
  receive(0, discover({answer, waiting}));
  receive(0, discovered(1));
  host->take_sent();
  for (int i = 0; i < 2; ++i) receive(0, gradient(answer, {at::ones({2})}));
  receive(2, gradient(waiting, {at::ones({2})}));
  host->run_tasks();
  CHECK(table->size() == 0);
  CHECK(context->gradient(weight).equal(at::ones({2}).mul(5)));
}

TEST_CASE_FIXTURE(Smart, "a question in a context that is not here is reported") {
  receive(2, discover({answer}));
  CHECK((only_failure().code == errc::unknown_context));
  CHECK(table->size() == 0);
}

TEST_CASE_FIXTURE(Smart, "a question in a context that was released is reported") {
  answer_a_call();
  table->release(id);
  contexts.release(id);
  receive(0, discover({answer}));
  CHECK((only_failure().code == errc::unknown_context));
  CHECK(table->size() == 0);
}

TEST_CASE_FIXTURE(Smart, "a question about a message that was not sent from here is reported") {
  answer_a_call();
  receive(0, discover({answer, {WorkerId{1}, Incarnation{41}, 1000}}));
  auto const error = only_failure();
  CHECK((error.code == errc::unknown_message));
  CHECK(error.worker == "w1");
  CHECK(error.text.find("1/41/1000") != std::string::npos);
  abort();
}

TEST_CASE_FIXTURE(Smart, "a question that is cut off is reported") {
  answer_a_call();
  auto message = discover({answer});
  message.metadata.pop_back();
  receive(0, std::move(message));
  CHECK((only_failure().code == errc::bad_value));
  CHECK(table->size() == 0);
}

TEST_CASE_FIXTURE(Smart, "gradients for a pass whose discovery did not come here are reported") {
  answer_a_call();
  receive(0, gradient(answer, {at::ones({2})}));
  CHECK((only_failure().code == errc::bad_message));
  host->run_tasks();
  CHECK(table->size() == 0);
  CHECK_FALSE(has_gradient());
}

TEST_CASE_FIXTURE(Smart, "gradients that nobody asked about end the pass") {
  answer_two_calls();
  join();
  receive(0, gradient(waiting, {at::ones({2})}));
  host->run_tasks();
  CHECK((only_failure().code == errc::bad_message));
  abort();
  CHECK_FALSE(has_gradient());
}

// --- overlapped ----------------------------------------------------------------------------------

TEST_CASE_FIXTURE(Smart, "an overlapped part may begin with gradients, and lingers when complete") {
  options.is_overlapped = true;
  answer_a_call();
  run_part();
  CHECK(table->size() == 1);
  CHECK(context->gradient(weight).equal(at::ones({2}).mul(3)));
  receive(0, discover({answer}));
  CHECK((kinds_sent_to(w0) == Kinds{FrameKind::pass_discover}));
  receive(0, control(FrameKind::pass_commit));
  CHECK(table->size() == 0);
  CHECK(host->take_sent().empty());
  CHECK(context->gradient(weight).equal(at::ones({2}).mul(3)));
}

TEST_CASE_FIXTURE(Smart, "an overlapped part waits for unused messages until it is released") {
  options.is_overlapped = true;
  answer_two_calls();
  receive(0, gradient(answer, {at::ones({2})}));
  host->run_tasks();
  CHECK((kinds_sent_to(w0) == Kinds{FrameKind::gradient}));
  receive(0, discover({answer}));
  receive(0, discovered(1));
  CHECK((kinds_sent_to(w0) == Kinds{FrameKind::pass_discover, FrameKind::pass_discovered}));
  CHECK_FALSE(has_gradient());
  for (int i = 0; i < 2; ++i) receive(0, control(FrameKind::pass_release));
  host->run_tasks();
  CHECK((kinds_sent_to(w0) == Kinds{FrameKind::pass_done}));
  CHECK(context->gradient(weight).equal(at::ones({2}).mul(3)));
}

TEST_CASE_FIXTURE(Smart, "a release for a pass that is not here is ignored") {
  answer_a_call();
  receive(0, control(FrameKind::pass_release));
  CHECK(table->size() == 0);
  CHECK(host->take_sent().empty());
}

// --- commit --------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(Smart, "with global commit gradients are visible when the initiator says so") {
  options.commits_globally = true;
  join();
  run_part();
  CHECK(table->size() == 1);
  CHECK_FALSE(has_gradient());
  receive(0, control(FrameKind::pass_commit));
  CHECK(table->size() == 0);
  CHECK(has_gradient());
  CHECK((kinds_sent_to(w0) == Kinds{FrameKind::pass_committed}));
  receive(0, control(FrameKind::pass_commit));
  CHECK(host->take_sent().empty());
  CHECK(context->gradient(weight).equal(at::ones({2}).mul(3)));
}

TEST_CASE_FIXTURE(Smart, "with global commit an abort leaves no gradients, complete or not") {
  options.commits_globally = true;
  join();
  run_part();
  abort();
  receive(0, control(FrameKind::pass_commit));
  CHECK(host->take_sent().empty());
  CHECK_FALSE(has_gradient());
}

// --- the end -------------------------------------------------------------------------------------

TEST_CASE_FIXTURE(Smart, "an abort spreads to those who were asked, whose answers it waits for") {
  answer_a_call();
  std::vector<at::Tensor> arrived{at::ones({2})};
  context->add_recv({w2, Incarnation{42}, 1}, w2, arrived);
  context->add_send(waiting, w0, std::vector{arrived[0].mul(2)});
  receive(0, discover({waiting}));
  CHECK((kinds_sent_to(w2) == Kinds{FrameKind::pass_discover}));
  receive(0, control(FrameKind::pass_abort));
  CHECK((kinds_sent_to(w2) == Kinds{FrameKind::pass_abort}));
  CHECK(table->size() == 1);
  receive(2, control(FrameKind::pass_aborted,
                     [](Writer& out) { distgrad::detail::write_status(out, {}); }));
  CHECK((kinds_sent_to(w0) == Kinds{FrameKind::pass_aborted}));
  CHECK(table->size() == 0);
}

TEST_CASE_FIXTURE(Smart, "an abort of a pass that is not here is answered") {
  answer_a_call();
  for (int i = 0; i < 2; ++i) {
    receive(2, control(FrameKind::pass_abort));
    auto const sent = only_sent();
    CHECK(sent.to == w2);
    CHECK((sent.message.kind == FrameKind::pass_aborted));
    Reader in(sent.message.metadata);
    CHECK(in.id<PassId>() == pass);
    CHECK_FALSE(distgrad::detail::read_status(in).is_idle);
  }
}

TEST_CASE_FIXTURE(Smart, "a failure in a pass that is over is answered with an abort") {
  context = contexts.create();
  pass = {context->id(), WorkerId{1}, 1};
  receive(2, failure());
  CHECK((kinds_sent_to(w2) == Kinds{FrameKind::pass_abort}));
  CHECK(table->size() == 0);
}

TEST_CASE_FIXTURE(Smart, "what comes late for a pass that is over starts nothing") {
  for (bool aborted : {false, true}) {
    pass.sequence += 1;
    join();
    if (aborted) {
      abort();
    } else {
      receive(0, gradient(answer, {at::ones({2})}));
      host->run_tasks();
      host->take_sent();
    }
    receive(0, discover({answer}));
    receive(2, discover({answer}, 5));
    receive(0, gradient(answer, {at::ones({2})}));
    for (auto kind : {FrameKind::pass_commit, FrameKind::pass_query}) receive(0, control(kind));
    receive(0, discovered(1));
    host->run_tasks();
    CHECK(table->size() == 0);
    CHECK(host->take_sent().empty());
    if (!aborted) break;  // its nodes let go of what they saved
  }
}

TEST_CASE_FIXTURE(Smart, "what comes before an abort that overtook it starts nothing") {
  answer_a_call();
  abort();
  receive(0, discover({answer}));
  receive(0, gradient(answer, {at::ones({2})}));
  CHECK(table->size() == 0);
  CHECK(host->take_sent().empty());
}

TEST_CASE_FIXTURE(Smart, "a pass that a lost worker started does not begin here") {
  answer_a_call();
  options.is_smart = false;
  agent.dispatcher().on_peer_lost(w0, errc::peer_lost);
  receive(2, gradient(answer, {at::ones({2})}));
  receive(2, discover({answer}));
  CHECK(table->size() == 0);
  CHECK(host->take_sent().empty());
}

TEST_CASE_FIXTURE(Smart, "passes that are over are remembered: the newest, and all before") {
  answer_a_call();
  constexpr std::uint32_t first = 10, remembered = 1024;
  auto const starts = [&](std::uint32_t number) {
    pass.sequence = number;
    receive(0, discover({answer}));
    bool const started = table->size() != 0;
    if (started) {
      receive(0, discovered(1));
      host->take_sent();
      abort();
    }
    return started;
  };
  for (auto number = first; number < first + remembered - 1; ++number) {
    pass.sequence = number;
    abort();
  }
  CHECK(starts(3));  // there is room for one more, and it is not among them
  CHECK_FALSE(starts(2));
  CHECK_FALSE(starts(first));
  CHECK_FALSE(starts(first + remembered - 2));
  CHECK(starts(first + remembered - 1));
  CHECK_FALSE(starts(3));  // forgotten, and older than all that are not
  CHECK_FALSE(starts(first));
  CHECK(starts(first + 2 * remembered));
}

TEST_CASE_FIXTURE(Smart, "the passes that are over are told apart by context and by initiator") {
  join();
  abort();
  pass.initiator = w2;
  receive(2, discover({answer}));
  CHECK(table->size() == 1);
}

}  // namespace pass_table_smart_tests
