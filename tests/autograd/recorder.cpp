#include <distgrad/autograd/recorder.hpp>

#include "recording_host.hpp"

#include <doctest/doctest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

namespace recorder_tests {

using namespace distgrad;

namespace {

struct Part : recording_host::End {
  explicit Part(std::uint32_t rank) : End(rank), contexts(ids), recorder(agent, contexts, ids) {}
  ContextTable contexts;
  Recorder recorder;
};

at::Tensor leaf() { return at::ones({2}).set_requires_grad(true); }

/// What a message of `tensors` looks like when it arrives.
ReceivedTensors received(std::vector<at::Tensor> const& tensors) {
  ReceivedTensors result;
  for (auto const& tensor : tensors) {
    result.tensors.push_back(tensor.detach().clone());
    result.requires_grad.push_back(tensor.requires_grad());
  }
  return result;
}

struct Fixture {
  Part sender{0}, receiver{1};

  /// Sends `tensors` from one to the other under `state`.
  CallState transfer(CallState const& state, bool is_call, std::vector<at::Tensor> const& tensors,
                     ReceivedTensors& arrived) {
    Writer extends;
    sender.recorder.leaving(state, WorkerId{1}, is_call, tensors, extends);
    arrived = received(tensors);
    Reader in(extends.bytes());
    auto result = receiver.recorder.arriving(WorkerId{0}, is_call, arrived, in);
    CHECK(in.ok());
    CHECK(in.at_end());
    return result;
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "outside of a context tensors arrive as leaves with their own flags") {
  ReceivedTensors arrived;
  CHECK(transfer(nullptr, true, {leaf(), leaf().detach()}, arrived) == nullptr);
  CHECK(arrived.tensors[0].requires_grad());
  CHECK(arrived.tensors[0].is_leaf());
  CHECK_FALSE(arrived.tensors[1].requires_grad());
  CHECK(receiver.contexts.size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a recorded message has a send function here and its twin there") {
  auto const context = sender.contexts.create();
  auto const x = leaf(), y = leaf();
  ReceivedTensors arrived;
  auto const state = transfer(context, true, {x, leaf().detach(), y}, arrived);
  REQUIRE(state != nullptr);
  auto const part = receiver.contexts.get(context->id());
  CHECK(state == part);
  REQUIRE(context->sends().size() == 1);
  REQUIRE(part->recvs().size() == 1);
  auto const& send = dynamic_cast<SendRpcBackward const&>(*context->sends()[0]);
  auto const& recv = dynamic_cast<RecvRpcBackward const&>(*part->recvs()[0]);
  CHECK(send.id() == recv.id());
  CHECK(send.to() == WorkerId{1});
  CHECK(recv.from() == WorkerId{0});
  CHECK(send.num_inputs() == 2);
  CHECK(arrived.tensors[0].grad_fn().get() == &recv);
  CHECK_FALSE(arrived.tensors[1].requires_grad());
  CHECK(arrived.tensors[2].output_nr() == 1);
  CHECK(context->known_workers() == std::set{WorkerId{1}});
  CHECK(part->known_workers().empty());
}

TEST_CASE_FIXTURE(Fixture, "a call carries its context even with nothing to differentiate") {
  auto const context = sender.contexts.create();
  ReceivedTensors arrived;
  auto const state = transfer(context, true, {leaf().detach()}, arrived);
  CHECK(state == receiver.contexts.get(context->id()));
  CHECK(context->sends().empty());
  CHECK(context->known_workers() == std::set{WorkerId{1}});
}

TEST_CASE_FIXTURE(Fixture, "an answer with nothing to differentiate carries no context") {
  auto const context = sender.contexts.create();
  ReceivedTensors arrived;
  CHECK(transfer(context, false, {leaf().detach()}, arrived) == nullptr);
  CHECK(receiver.contexts.size() == 0);
  CHECK(context->known_workers().empty());
}

TEST_CASE_FIXTURE(Fixture, "under NoGradGuard tensors arrive as constants") {
  auto const context = sender.contexts.create();
  c10::AutoGradMode const off(false);
  ReceivedTensors arrived;
  CHECK(transfer(context, true, {leaf()}, arrived) != nullptr);
  CHECK(context->sends().empty());
  CHECK_FALSE(arrived.tensors[0].requires_grad());
}

TEST_CASE_FIXTURE(Fixture, "a late answer to a released context brings constants") {
  auto const context = sender.contexts.create();
  receiver.contexts.get_or_create(context->id());
  receiver.contexts.release(context->id());
  ReceivedTensors arrived;
  CHECK(transfer(context, false, {leaf()}, arrived) == nullptr);
  CHECK_FALSE(arrived.tensors[0].requires_grad());
  CHECK(receiver.contexts.size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a late call does not revive a released context") {
  auto const context = sender.contexts.create();
  receiver.contexts.release(context->id());
  ReceivedTensors arrived;
  CHECK_THROWS_AS(transfer(context, true, {leaf()}, arrived), Error);
  CHECK(receiver.contexts.size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a tensor that can have no gradient but is marked so is an error") {
  auto const context = sender.contexts.create();
  Writer extends;
  std::vector<at::Tensor> const sent{leaf()};
  for (CallState const& state : {CallState(context), CallState()}) {
    Writer out;
    sender.recorder.leaving(state, WorkerId{1}, true, sent, out);
    ReceivedTensors arrived{{at::arange(2, at::kLong)}, {true}};
    Reader in(out.bytes());
    CHECK_THROWS_AS(receiver.recorder.arriving(WorkerId{0}, true, arrived, in), Error);
    ReceivedTensors nothing{{at::Tensor()}, {true}};
    Reader again(out.bytes());
    CHECK_THROWS_AS(receiver.recorder.arriving(WorkerId{0}, true, nothing, again), Error);
  }
}

TEST_CASE_FIXTURE(Fixture, "what a peer sends cut off makes no context") {
  auto const context = sender.contexts.create();
  std::vector<at::Tensor> const sent{leaf()};
  Writer out;
  sender.recorder.leaving(context, WorkerId{1}, true, sent, out);
  for (std::size_t size = 0; size < out.size_bytes(); ++size) {
    auto arrived = received(sent);
    Reader in(std::span(out.bytes()).first(size));
    CHECK(receiver.recorder.arriving(WorkerId{0}, true, arrived, in) == nullptr);
    CHECK_FALSE(in.ok());
  }
  CHECK(receiver.contexts.size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "a release goes to each known worker but not to the worker itself") {
  auto const context = sender.contexts.create();
  for (std::uint32_t worker : {0, 1, 2}) context->add_known_worker(WorkerId{worker});
  std::vector<ContextId> told;
  sender.recorder.on_release(
      [&](DistAutogradContext const& context) { told.push_back(context.id()); });
  sender.recorder.release(context->id());
  auto sent = sender.host->take_sent();
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].to == WorkerId{1});
  CHECK(sent[1].to == WorkerId{2});
  CHECK(told == std::vector{context->id()});
  sender.recorder.release(context->id());  // known no more: the flood ends
  CHECK(sender.host->take_sent().empty());
  CHECK(told.size() == 1);

  receiver.contexts.get_or_create(context->id())->add_known_worker(WorkerId{2});
  auto const bytes = sent[0].message.metadata;
  receiver.receive(0, std::move(sent[0].message));
  CHECK(receiver.contexts.size() == 0);
  auto const forwarded = receiver.host->take_sent();
  REQUIRE(forwarded.size() == 1);
  CHECK(forwarded[0].to == WorkerId{2});
  receiver.receive(2, {.kind = FrameKind::context_release, .metadata = bytes});
  CHECK(receiver.host->take_sent().empty());
}

TEST_CASE_FIXTURE(Fixture, "a malformed release releases nothing") {
  receiver.contexts.get_or_create(sender.contexts.create()->id());
  receiver.receive(0, {.kind = FrameKind::context_release, .metadata = std::vector<std::byte>(5)});
  CHECK(receiver.contexts.size() == 1);
}

TEST_CASE_FIXTURE(Fixture, "the recorder installs contexts as the state of a thread") {
  auto const context = sender.contexts.create();
  CHECK(sender.recorder.current() == nullptr);
  CHECK(sender.recorder.install(context) == nullptr);
  CHECK(sender.recorder.current() == context);
  CHECK(sender.recorder.install(nullptr) == context);
}

}  // namespace recorder_tests
