#include <distgrad/engine/pass_table.hpp>

#include "pass_table_rig.hpp"

namespace pass_table_tests {

using namespace pass_table_rig;

TEST_CASE_FIXTURE(Fixture, "[DA-75] no pass runs after a local one") {
  auto const x = at::ones({2}).set_requires_grad(true);
  auto const local = contexts.create();
  std::vector<at::Tensor> const roots{x.mul(2).sum()};
  table->backward(local->id(), roots, {});
  CHECK(table->size() == 0);
  CHECK(local->gradient(x).equal(at::ones({2}).mul(2)));
  CHECK(host->sent.empty());
}

TEST_CASE_FIXTURE(Fixture, "[DA-76] no pass runs after a send function got its gradients") {
  answer_a_call();
  receive(0, gradient(answer, {at::ones({2})}));
  CHECK(table->size() == 1);
  host->run_tasks();
  CHECK(table->size() == 0);
  CHECK(context->gradient(weight).equal(at::ones({2}).mul(3)));

  auto const sent = host->take_sent();
  REQUIRE(sent.size() == 2);
  CHECK((sent[0].message.kind == FrameKind::gradient));
  CHECK(sent[0].to == w0);
  Reader in(sent[0].message.metadata);
  CHECK(in.id<PassId>() == pass);
  auto const frame = distgrad::detail::read_gradient(*host, in, sent[0].message.buffers);
  CHECK(frame.message == request);
  CHECK(frame.gradients.at(0).equal(at::ones({2}).mul(3)));

  CHECK((sent[1].message.kind == FrameKind::pass_done));
  Reader done(sent[1].message.metadata);
  CHECK(done.id<PassId>() == pass);
  auto const last = distgrad::detail::read_status(done);
  CHECK(last.sent == 1);
  CHECK(last.received == 1);
  CHECK(last.peers == std::set{w0});
}

TEST_CASE_FIXTURE(Fixture, "gradients for a pass that is over are dropped") {
  answer_a_call();
  receive(0, gradient(answer, {at::ones({2})}));
  host->run_tasks();
  host->take_sent();
  receive(0, gradient(answer, {at::ones({2})}));
  host->run_tasks();
  CHECK(table->size() == 0);
  CHECK(host->take_sent().empty());
  CHECK(context->gradient(weight).equal(at::ones({2}).mul(3)));
}

TEST_CASE_FIXTURE(Fixture, "gradients that come after an abort start no part") {
  answer_a_call();
  receive(0, control(FrameKind::pass_abort));
  CHECK((kinds_sent_to(w0) == Kinds{FrameKind::pass_aborted}));
  receive(0, gradient(answer, {at::ones({2})}));
  host->run_tasks();
  CHECK(table->size() == 0);
  CHECK(host->take_sent().empty());
  CHECK_FALSE(context->gradient(weight).defined());
}

TEST_CASE_FIXTURE(Fixture, "an abort between arrival and work leaves no gradients") {
  answer_a_call();
  receive(0, gradient(answer, {at::ones({2})}));
  receive(0, control(FrameKind::pass_abort));
  CHECK(host->take_sent().empty());  // its work waits for a thread: it has not stopped
  host->run_tasks();
  CHECK(table->size() == 0);
  CHECK((kinds_sent_to(w0) == Kinds{FrameKind::pass_aborted}));
  CHECK_FALSE(context->gradient(weight).defined());
}

TEST_CASE_FIXTURE(Fixture, "gradients for a context that is not here are reported") {
  receive(2, gradient(answer, {at::ones({2})}));
  auto const error = only_failure();
  CHECK((error.code == errc::unknown_context));
  CHECK(error.worker == "w1");
  CHECK(table->size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "gradients for a message that was not sent from here are reported") {
  answer_a_call();
  receive(0, gradient(request, {at::ones({2})}));
  host->run_tasks();
  CHECK((only_failure().code == errc::unknown_message));
  abort();
}

TEST_CASE_FIXTURE(Fixture, "gradients that do not fit their send function are reported") {
  answer_a_call();
  receive(0, gradient(answer, {at::ones({2}), at::ones({2})}));
  host->run_tasks();
  CHECK((only_failure().code == errc::bad_message));
  abort();
  CHECK_FALSE(context->gradient(weight).defined());
}

TEST_CASE_FIXTURE(Fixture, "a gradient message that is cut off is reported") {
  answer_a_call();
  auto message = gradient(answer, {at::ones({2})});
  message.metadata.resize(message.metadata.size() - 1);
  receive(0, std::move(message));
  CHECK((only_failure().code == errc::bad_value));
  CHECK(table->size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "gradients that cannot be sent end the part") {
  answer_two_calls();
  receive(0, gradient(answer, {at::ones({2})}));
  host->run_tasks();
  auto sent = only_sent();
  CHECK((sent.message.kind == FrameKind::gradient));
  CHECK(table->size() == 1);
  sent.done(make_error_code(errc::peer_lost));
  CHECK(table->size() == 0);  // it was the initiator: nobody else is to hear of it
  CHECK_FALSE(context->gradient(weight).defined());
}

TEST_CASE_FIXTURE(Fixture, "a part answers a query with what it waits for") {
  answer_two_calls();
  receive(0, gradient(answer, {at::ones({2})}));
  auto const asked = [&] {
    receive(0, control(FrameKind::pass_query, [](Writer& out) { out.number(std::uint32_t{6}); }));
    auto sent = host->take_sent();
    REQUIRE_FALSE(sent.empty());
    CHECK((sent.back().message.kind == FrameKind::pass_status));
    Reader in(sent.back().message.metadata);
    in.id<PassId>();
    return distgrad::detail::read_status(in);
  };
  CHECK_FALSE(asked().is_idle);  // its work waits for a thread
  host->run_tasks();
  auto const status = asked();
  CHECK(status.round == 6);
  CHECK(status.is_idle);
  CHECK(status.received == 1);
  CHECK(status.sent == 1);
  REQUIRE(status.awaited.size() == 1);
  CHECK(status.awaited[0].message == waiting);
  CHECK(status.awaited[0].from == w2);
}

TEST_CASE_FIXTURE(Fixture, "a query about a pass that is not here is answered: not idle") {
  receive(0, control(FrameKind::pass_query, [](Writer& out) { out.number(std::uint32_t{6}); }));
  auto const sent = only_sent();
  CHECK(sent.to == w0);
  CHECK((sent.message.kind == FrameKind::pass_status));
  Reader in(sent.message.metadata);
  CHECK(in.id<PassId>() == pass);
  auto const status = distgrad::detail::read_status(in);
  CHECK(status.round == 6);
  CHECK_FALSE(status.is_idle);
}

TEST_CASE_FIXTURE(Fixture, "the loss of a worker ends the passes it takes part in") {
  answer_two_calls();
  receive(0, gradient(answer, {at::ones({2})}));
  host->run_tasks();
  host->take_sent();
  agent.dispatcher().on_peer_lost(w2, errc::peer_lost);
  CHECK(table->size() == 1);  // worker 2 is no part of it yet
  agent.dispatcher().on_peer_lost(w0, errc::peer_lost);
  CHECK(table->size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "the initiator hears of a part whose context is released") {
  answer_two_calls();
  receive(0, gradient(answer, {at::ones({2})}));
  host->run_tasks();
  host->take_sent();
  table->release({w0, Incarnation{40}, 99});  // another one
  CHECK(host->sent.empty());
  table->release(id);
  CHECK((only_failure().code == errc::unknown_context));
  abort();
}

TEST_CASE_FIXTURE(Fixture, "the end of the engine ends its passes") {
  answer_a_call();
  receive(0, gradient(answer, {at::ones({2})}));
  CHECK(table->size() == 1);
  table->close();
  CHECK(table->size() == 0);
  host->run_tasks();
  CHECK_FALSE(context->gradient(weight).defined());
}

TEST_CASE_FIXTURE(Fixture, "messages about passes that are not here are ignored") {
  answer_a_call();
  for (auto kind : {FrameKind::pass_done, FrameKind::pass_discovered, FrameKind::pass_query,
                    FrameKind::pass_status, FrameKind::pass_commit, FrameKind::pass_committed,
                    FrameKind::pass_aborted}) {
    receive(0, control(kind));
    receive(0, {.kind = kind, .metadata = std::vector<std::byte>(3)});
  }
  for (auto kind : {FrameKind::pass_abort, FrameKind::pass_failed}) {
    receive(0, {.kind = kind, .metadata = std::vector<std::byte>(3)});
  }
  CHECK(table->size() == 0);
  CHECK(host->take_sent().empty());
}

TEST_CASE_FIXTURE(Fixture, "a pass that started here does not begin again with a late gradient") {
  context = contexts.create();
  PassId const own{context->id(), WorkerId{1}, 1};
  receive(0, distgrad::detail::gradient_message(*host, own, options, answer, {}, {at::ones({2})},
                                                {true}));
  CHECK(table->size() == 0);
  CHECK(host->take_sent().empty());
}

}  // namespace pass_table_tests
