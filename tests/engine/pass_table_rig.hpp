#pragma once
// A worker's table of passes over a recording host, and the messages that come for it.

#include "../autograd/recording_host.hpp"

#include <doctest/doctest.h>
#include <distgrad/engine/pass_frames.hpp>
#include <distgrad/engine/pass_table.hpp>

#include <ATen/ops/ones.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace pass_table_rig {

using namespace distgrad;

inline constexpr WorkerId w0{0}, w2{2};
using Kinds = std::vector<FrameKind>;

/// Worker 1 with a context, in which it got `x` from worker 0 and answered `x * 3`.
struct Fixture : recording_host::End {
  Fixture() : End(1) {
    table = std::make_unique<PassTable>(agent, contexts, recorder, PassTable::Options{});
  }

  ContextTable contexts{ids};
  Recorder recorder{agent, contexts, ids};
  std::unique_ptr<PassTable> table;
  ContextId const id{w0, Incarnation{40}, 1};
  PassId pass{id, w0, 1};
  PassOptions options{.is_smart = false};
  AutogradMessageId const request{w0, Incarnation{40}, 2}, answer{WorkerId{1}, Incarnation{41}, 3},
      waiting{WorkerId{1}, Incarnation{41}, 9};
  at::Tensor const weight = at::ones({2}).set_requires_grad(true);
  ContextPtr context;

  void answer_a_call() {
    context = contexts.get_or_create(id);
    std::vector<at::Tensor> arrived{at::ones({2})};
    context->add_recv(request, w0, arrived);
    std::vector<at::Tensor> const result{arrived[0].mul(weight).mul(3)};
    context->add_send(answer, w0, result);
  }
  /// Likewise, but a part of a FAST pass is not complete without worker 2's gradients.
  void answer_two_calls() {
    answer_a_call();
    std::vector<at::Tensor> const other{weight.mul(2)};
    context->add_send(waiting, w2, other);
  }
  Message gradient(AutogradMessageId message, variable_list const& gradients) {
    return distgrad::detail::gradient_message(*host, pass, options, message, {}, gradients,
                                              Lives(gradients.size(), true));
  }
  Message discover(std::vector<AutogradMessageId> const& messages, std::uint32_t number = 1) {
    return distgrad::detail::discover_message(pass, options, {WorkerId{1}, number, messages});
  }
  Message discovered(std::uint32_t number) {
    return distgrad::detail::discovered_message(pass, {WorkerId{1}, number, {}});
  }
  Message control(FrameKind kind, std::function<void(Writer&)> write = nullptr) {
    Writer out;
    out.id(pass);
    if (write) write(out);
    return {.kind = kind, .metadata = out.take()};
  }
  Message failure() {
    return control(FrameKind::pass_failed, [](Writer& out) {
      write_error(out, {errc::pass_failed, "w0", {}, {}, "broken"});
    });
  }
  /// The part of a SMART pass in which `answer` takes part, up to the end of its discovery.
  void join() {
    options.is_smart = true;
    if (!context) answer_a_call();
    receive(0, discover({answer}));
    CHECK(table->size() == 1);
    receive(0, discovered(1));
    CHECK((kinds_sent_to(w0) == Kinds{FrameKind::pass_discover, FrameKind::pass_discovered}));
  }
  /// What was sent since the last call, all of it to `to`, about this pass.
  Kinds kinds_sent_to(WorkerId to) {
    Kinds kinds;
    for (auto const& sent : host->take_sent()) {
      CHECK(sent.to == to);
      Reader in(sent.message.metadata);
      CHECK(in.id<PassId>() == pass);
      kinds.push_back(sent.message.kind);
    }
    return kinds;
  }
  /// The initiator ends the pass, and hears that this part has stopped.
  void abort() {
    receive(0, control(FrameKind::pass_abort));
    CHECK(table->size() == 0);
    CHECK((kinds_sent_to(w0) == Kinds{FrameKind::pass_aborted}));
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

}  // namespace pass_table_rig
