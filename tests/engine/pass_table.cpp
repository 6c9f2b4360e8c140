#include <distgrad/engine/pass_table.hpp>

#include "../autograd/recording_host.hpp"

#include <distgrad/engine/pass_frames.hpp>
#include <doctest/doctest.h>

#include <ATen/ops/ones.h>

#include <functional>
#include <memory>

using namespace distgrad;

namespace {

constexpr WorkerId w0{0}, w2{2};

/// Worker 1 with a context, in which it got `x` from worker 0 and answered `x * 3`.
struct Fixture : recording_host::End {
  Fixture() : End(1) {
    table = std::make_unique<PassTable>(agent, contexts, std::chrono::seconds(1));
  }

  ContextTable contexts{ids};
  std::unique_ptr<PassTable> table;
  ContextId const id{w0, Incarnation{40}, 1};
  PassId const pass{id, w0, 1};
  AutogradMessageId const request{w0, Incarnation{40}, 2}, answer{WorkerId{1}, Incarnation{41}, 3};
  at::Tensor const weight = at::ones({2}).set_requires_grad(true);
  ContextPtr context;

  void answer_a_call() {
    context = contexts.get_or_create(id);
    std::vector<at::Tensor> arrived{at::ones({2})};
    context->add_recv(request, w0, arrived);
    std::vector<at::Tensor> const result{arrived[0].mul(weight).mul(3)};
    context->add_send(answer, w0, result);
  }
  Message gradient(AutogradMessageId message, variable_list const& gradients) {
    return distgrad::detail::gradient_message(*host, pass, message, false, false, gradients);
  }
  Message control(FrameKind kind, std::function<void(Writer&)> write = nullptr) {
    Writer out;
    out.id(pass);
    if (write) write(out);
    return {.kind = kind, .metadata = out.take()};
  }
  /// The only message sent since the last call.
  recording_host::Sent only_sent() {
    auto sent = host->take_sent();
    REQUIRE(sent.size() == 1);
    return std::move(sent[0]);
  }
  /// The error of the only message sent, which must report a failure to worker 0.
  WireError only_failure() {
    auto const sent = only_sent();
    CHECK(sent.to == w0);
    CHECK((sent.message.kind == FrameKind::pass_failed));
    Reader in(sent.message.metadata);
    CHECK(in.id<PassId>() == pass);
    return read_error(in);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "[DA-75] no pass runs after a local one") {
  auto const x = at::ones({2}).set_requires_grad(true);
  auto const local = contexts.create();
  std::vector<at::Tensor> const roots{x.mul(2).sum()};
  table->backward(local, roots, {});
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
  CHECK(table->size() == 0);
  host->run_tasks();
  CHECK(host->take_sent().empty());
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
  CHECK(table->size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "gradients that do not fit their send function are reported") {
  answer_a_call();
  receive(0, gradient(answer, {at::ones({2}), at::ones({2})}));
  host->run_tasks();
  CHECK((only_failure().code == errc::bad_message));
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

TEST_CASE_FIXTURE(Fixture, "gradients that cannot be sent end the part with their error") {
  answer_a_call();
  std::vector<at::Tensor> const other{weight.mul(2)};  // its gradients never come: the part goes on
  context->add_send({WorkerId{1}, Incarnation{41}, 9}, w2, other);
  receive(0, gradient(answer, {at::ones({2})}));
  host->run_tasks();
  auto sent = only_sent();
  CHECK(table->size() == 1);
  sent.done(make_error_code(errc::peer_lost));
  auto const error = only_failure();
  CHECK((error.code == errc::peer_lost));
  CHECK(error.text.find("'w0'") != std::string::npos);
  CHECK(table->size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a part answers a query with what it waits for") {
  answer_a_call();
  AutogradMessageId const waiting{WorkerId{1}, Incarnation{41}, 9};
  std::vector<at::Tensor> const other{weight.mul(2)};
  context->add_send(waiting, w2, other);
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

TEST_CASE_FIXTURE(Fixture, "the loss of a worker ends the passes it takes part in") {
  answer_a_call();
  std::vector<at::Tensor> const other{weight.mul(2)};
  context->add_send({WorkerId{1}, Incarnation{41}, 9}, w2, other);
  receive(0, gradient(answer, {at::ones({2})}));
  host->run_tasks();
  host->take_sent();
  agent.dispatcher().on_peer_lost(w2, errc::peer_lost);
  CHECK(table->size() == 1);  // worker 2 is no part of it yet
  agent.dispatcher().on_peer_lost(w0, errc::peer_lost);
  CHECK(table->size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "the release of a context and the end of the engine end its passes") {
  for (bool closes : {false, true}) {
    answer_a_call();
    context->add_send({WorkerId{1}, Incarnation{41}, 9}, w2, std::vector{weight.mul(2)});
    PassId const next{id, w0, closes ? 8u : 7u};
    receive(0, distgrad::detail::gradient_message(*host, next, answer, true, false,
                                                  {at::ones({2})}));
    CHECK(table->size() == 1);
    closes ? table->close() : table->release(id);
    CHECK(table->size() == 0);
    host->run_tasks();
    auto const sent = only_sent();
    Reader in(sent.message.metadata);
    CHECK(in.id<PassId>() == next);
    CHECK((read_error(in).code == (closes ? errc::closed : errc::unknown_context)));
  }
}

TEST_CASE_FIXTURE(Fixture, "messages about passes that are not here are ignored") {
  answer_a_call();
  for (auto kind : {FrameKind::pass_done, FrameKind::pass_failed, FrameKind::pass_query,
                    FrameKind::pass_status}) {
    receive(0, control(kind));
    receive(0, {.kind = kind, .metadata = std::vector<std::byte>(3)});
  }
  receive(0, {.kind = FrameKind::pass_abort, .metadata = std::vector<std::byte>(3)});
  CHECK(table->size() == 0);
  CHECK(host->take_sent().empty());
}

TEST_CASE_FIXTURE(Fixture, "a pass that started here does not begin again with a late gradient") {
  context = contexts.create();
  PassId const own{context->id(), WorkerId{1}, 1};
  receive(0, distgrad::detail::gradient_message(*host, own, answer, false, false, {at::ones({2})}));
  CHECK(table->size() == 0);
  CHECK(host->take_sent().empty());
}
