#pragma once
#include <distgrad/observe/observer.hpp>
#include <distgrad/rref/impl/rref_table.ipp>  // with_protocol
#include <distgrad/rref/rref_table.hpp>

// The owner's side: values that live here, made for others and fetched by them.
namespace distgrad {

DISTGRAD_DECL RRefHandlePtr RRefTable::make_local(ErasedValue value) {
  auto const id = ids_.next<RRefId>();
  auto const self = agent().membership().self().id;
  auto const local = with_protocol([&] {
    bounds::rrefs.require_room(references());
    protocol_.created_locally(id);
    return entry(id);
  });
  local->set_value(std::move(value));
  return std::make_shared<RRefHandle>(shared_from_this(), self, id, ForkId{}, local);
}

DISTGRAD_DECL void RRefTable::on_create(WorkerId from, Message message) {
  Reader in(message.metadata);
  auto const control = detail::read_control(in, FrameKind::rref_create);
  auto const function = in.text();
  auto const signature = in.number<std::uint64_t>();
  auto const call = message.call;
  if (!in.ok()) {
    return engine_.answer_error(from, call, function,
                                std::make_exception_ptr(Error(errc::bad_message)));
  }
  FunctionEntry const* entry = nullptr;
  try {
    entry = &engine_.registry().find(function, signature);
  } catch (...) {
    return engine_.answer_error(from, call, function, std::current_exception());
  }
  std::shared_ptr<OwnerRRef> value;
  bool has_room = true;
  auto const verdict = with_protocol([&] {
    if (!agent_) return CreateVerdict::cancelled;
    // Of what it asks itself for, the reference is counted already.
    has_room = from == engine_.membership().self().id || bounds::rrefs.has_room(references());
    auto const v = protocol_.on_create(from, control);
    if (v == CreateVerdict::run) value = this->entry(control.rref);
    return v;
  });
  // The answer says that the owner knows the reference; how the function fares, its users learn.
  engine_.answer(from, call, Draft(from, engine_.services()), nullptr);
  if (verdict != CreateVerdict::run) return;
  auto const prefix_bytes = message.metadata.size() - in.remaining_bytes();
  Arrival arrival(from, std::move(message), prefix_bytes);
  auto done = on_created(value, *entry, call);
  if (has_room) return engine_.invoke(*entry, std::move(arrival), std::move(done));
  engine_.decline(*entry, std::move(arrival), std::move(done),
                  std::make_exception_ptr(bounds::rrefs.exceeded()));
}

DISTGRAD_DECL OnInvoked RRefTable::on_created(std::shared_ptr<OwnerRRef> const& value,
                                              FunctionEntry const& function, CallId call) {
  return
      [this, value, call, &function](std::exception_ptr error, BoundCall* bound, CallState const&) {
        if (!error) return value->set_value(bound->take_result());
        auto report = describe(error);
        value->set_error(
            std::make_exception_ptr(RemoteError(report.code, engine_.membership().self().name,
                                                function.name, call, std::move(report.text))));
      };
}

DISTGRAD_DECL std::shared_ptr<OwnerRRef> RRefTable::find_local(RRefId id) {
  std::lock_guard lock(mutex_);
  require_open();
  if (auto const at = owned_.find(id); at != owned_.end()) return at->second;
  // Its fork may have overtaken the message that makes the value.
  if (protocol_.handles(id) + protocol_.forks(id).size() != 0) return entry(id);
  throw Error(errc::rref_deleted, "the value " + to_string(id) + " does not live here any more");
}

DISTGRAD_DECL void RRefTable::on_fetch(WorkerId from, Message message) {
  Reader in(message.metadata);
  auto const id = in.id<RRefId>();
  auto const call = message.call;
  auto const prefix_bytes = message.metadata.size() - in.remaining_bytes();
  auto probe = CallProbe::of_served(engine_.observer(), "RRef::to_here", from, call);
  try {
    Arrival arrival(from, std::move(message), prefix_bytes);
    arrival.open(engine_.host(), engine_.interceptor(), true);
    auto const local = find_local(id);
    local->value().on_ready(
        [this, local, from, call, state = arrival.state(), probe = std::move(probe)]() mutable {
          try {
            auto const& value = local->value().get();
            local->enter();
            probe.end({});
            answer_fetch(from, call, value, state);
          } catch (RemoteError const& e) {  // of the function that should have made the value
            probe.end(e.code());
            engine_.answer_error(from, call, e.function(),
                                 std::make_exception_ptr(Error(e.code(), e.remote_text())));
          } catch (...) {
            if (probe) probe.end(describe(std::current_exception()).code);
            engine_.answer_error(from, call, "RRef::to_here", std::current_exception());
          }
        });
  } catch (...) {
    if (probe) probe.end(describe(std::current_exception()).code);
    engine_.answer_error(from, call, "RRef::to_here", std::current_exception());
  }
}

DISTGRAD_DECL void RRefTable::answer_fetch(WorkerId from, CallId call, ErasedValue const& value,
                                           CallState const& state) {
  CallStateScope scope(engine_.interceptor(), state);
  Draft draft(from, engine_.services());
  auto out = draft.encoder();
  value.encode(out, value.value.get());
  engine_.answer(from, call, std::move(draft), state);
}

}  // namespace distgrad
