#pragma once
#include <algorithm>
#include <chrono>
#include <memory>

#include <distgrad/raw/raw_agent.hpp>
#include <distgrad/wire/error_frame.hpp>

namespace distgrad {

DISTGRAD_DECL void RawAgent::call(WorkerRef const& to, std::string_view function, Message request,
                                  Deadline deadline, OnRawAnswer on_answer) {
  auto const* const worker = membership_.find(to);
  if (!worker) {
    return on_answer(ErrorReport{errc::unknown_worker, membership_.why_unknown(to)});
  }
  CallId const call{++last_call_};
  request.call = call;
  pending_.emplace(call, Pending{worker->id, std::string(function), Clock::now(), deadline,
                                 std::move(on_answer)});
  if (is_closed_) return failures_.push_back({call, errc::closed});
  send_(worker->id, std::move(request), [this, call](error_code code) {
    if (code) failures_.push_back({call, code});
  });
}

DISTGRAD_DECL void RawAgent::define(std::string name, std::uint64_t signature, RawHandler handler) {
  functions_.insert_or_assign(std::move(name), Function{signature, std::move(handler)});
}

// Every queue may grow, and an entry may be handled by a `work` inside of another one's handler:
// entries are taken out first.
DISTGRAD_DECL std::size_t RawAgent::work(time_point now) {
  std::size_t done = 0;
  for (; !arrived_.empty(); ++done) {
    auto [from, message] = std::move(arrived_.front());
    arrived_.pop_front();
    handle(from, std::move(message));
  }
  for (; !lost_.empty(); ++done) {
    auto const [peer, why] = lost_.front();
    lost_.pop_front();
    lose(peer, why);
  }
  for (; !failures_.empty(); ++done) {
    auto const failure = failures_.front();
    failures_.pop_front();
    fail(failure.call, failure.code);
  }
  expire(now);
  if (barrier_.is_asked()) carry_out(barrier_.look(pending_.empty(), last_call_));
  return done;
}

DISTGRAD_DECL time_point RawAgent::next_deadline() const {
  if (!arrived_.empty() || !lost_.empty() || !failures_.empty()) return time_point::min();
  auto next = time_point::max();
  for (auto const& [id, call] : pending_) next = std::min(next, call.deadline.at);
  return next;
}

DISTGRAD_DECL void RawAgent::leave() { carry_out(barrier_.want_to_leave()); }

DISTGRAD_DECL void RawAgent::close() {
  is_closed_ = true;
  while (!pending_.empty()) fail(pending_.begin()->first, errc::closed);
}

DISTGRAD_DECL std::vector<Buffer> RawAgent::landing(
    FrameHeader const& header, std::span<std::byte const>,
    std::span<std::uint64_t const> lengths) noexcept {
  std::vector<Buffer> buffers;
  for (auto const length : lengths) {
    auto buffer = detail::allocate_raw(length);
    if (!buffer.data()) {  // fewer buffers refuse the message
      if (header.kind != FrameKind::call) failures_.push_back({header.call, errc::limit_reached});
      break;
    }
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

DISTGRAD_DECL void RawAgent::on_message(WorkerId from, Message message) noexcept {
  arrived_.emplace_back(from, std::move(message));
}

DISTGRAD_DECL void RawAgent::on_peer_lost(WorkerId peer, error_code why) noexcept {
  lost_.emplace_back(peer, why);
}

DISTGRAD_DECL void RawAgent::handle(WorkerId from, Message message) {
  switch (message.kind) {
    case FrameKind::call: return run(from, message);
    case FrameKind::reply:
    case FrameKind::error_reply: return take_answer(from, std::move(message));
    case FrameKind::shutdown_ready:
    case FrameKind::shutdown_check:
    case FrameKind::shutdown_state:
    case FrameKind::shutdown_leave: return take_barrier(from, message);
    case FrameKind::rref_create:
    case FrameKind::rref_fetch:
      return answer_error(
          from, message.call, {},
          {errc::not_supported, "this worker is a raw one: it keeps no values for others"});
    default: return;  // contexts and passes, of which nothing is here
  }
}

DISTGRAD_DECL void RawAgent::run(WorkerId from, Message const& message) {
  Reader in(message.metadata);
  auto const name = in.text_view();
  auto const signature = in.number<std::uint64_t>();
  RawValues result;
  auto const failed = in.ok() ? try_run(name, signature, message,
                                        message.metadata.size() - in.remaining_bytes(), result)
                              : ErrorReport{errc::bad_message, "the call is malformed"};
  if (failed) return answer_error(from, message.call, name, *failed);
  send(from, make_raw_reply(message.call, std::move(result)));
}

DISTGRAD_DECL std::optional<ErrorReport> RawAgent::try_run(std::string_view name,
                                                           std::uint64_t signature,
                                                           Message const& message,
                                                           std::size_t prefix_bytes,
                                                           RawValues& result) {
  auto const found = functions_.find(std::string(name));
  if (found == functions_.end()) {
    return ErrorReport{errc::unknown_function,
                       "no function '" + std::string(name) + "' is defined on this raw worker"};
  }
  if (found->second.signature != signature) {
    return ErrorReport{errc::signature_mismatch,
                       "'" + std::string(name) + "' takes or returns other types on this worker"};
  }
  auto values = read_raw_values(message, prefix_bytes);
  if (!values) return values.error();
  if (values->extension == Extension::recorded) {
    return ErrorReport{errc::not_supported,
                       "a raw worker sends no gradients back: call '" + std::string(name) +
                           "' with tensors that need none, or without recording"};
  }
  Reader in(values->bytes);
  RawDecoder arguments{in, values->tensors};
  RawEncoder out{result.writer, result.tensors};
  return found->second.handler(arguments, out);
}

DISTGRAD_DECL void RawAgent::answer_error(WorkerId to, CallId call, std::string_view function,
                                          ErrorReport const& error) {
  Writer out;
  write_error(out, {error.code, membership_.self().name, std::string(function), call, error.text});
  send(to, Message{.kind = FrameKind::error_reply, .call = call, .metadata = out.take()});
}

DISTGRAD_DECL void RawAgent::take_answer(WorkerId from, Message message) {
  auto const call = pending_.find(message.call);
  if (call == pending_.end() || call->second.to != from) return;  // late, or not its to answer
  if (message.kind == FrameKind::reply) return finish(call, std::move(message));
  Reader in(message.metadata);
  auto const error = read_error(in);
  auto const where = "on worker '" + error.worker + "' in '" + call->second.function + "': ";
  finish(call, ErrorReport{error.code, where + error.text});
}

DISTGRAD_DECL void RawAgent::take_barrier(WorkerId from, Message const& message) {
  Reader in(message.metadata);
  auto const round = in.number<std::uint64_t>();
  auto const calls = in.number<std::uint64_t>();
  if (in.ok()) carry_out(barrier_.on_message(from, message.kind, round, calls));
}

template <class Condition>
void RawAgent::fail_if(Condition condition, error_code code) {
  std::vector<CallId> calls;
  for (auto const& [id, call] : pending_) {
    if (condition(call)) calls.push_back(id);
  }
  for (auto const call : calls) fail(call, code);
}

DISTGRAD_DECL void RawAgent::lose(WorkerId peer, error_code why) {
  carry_out(barrier_.peer_lost(peer));
  fail_if([&](Pending const& call) { return call.to == peer; }, why);
}

DISTGRAD_DECL void RawAgent::expire(time_point now) {
  fail_if([&](Pending const& call) { return call.deadline.has_passed(now); }, errc::timeout);
}

DISTGRAD_DECL void RawAgent::fail(CallId id, error_code code) {
  auto const call = pending_.find(id);
  if (call == pending_.end()) return;  // an `on_answer` before this one ended it
  auto const why = code == errc::timeout
                       ? " got no answer before its deadline; the function may still run there"
                       : " failed: " + code.message();
  finish(call, ErrorReport{code, describe(call->second) + why});
}

DISTGRAD_DECL void RawAgent::finish(std::map<CallId, Pending>::iterator call,
                                    Result<Message> outcome) {
  auto on_answer = std::move(call->second.on_answer);
  pending_.erase(call);
  on_answer(std::move(outcome));
}

DISTGRAD_DECL std::string RawAgent::describe(Pending const& call) const {
  auto const waited = std::chrono::duration_cast<milliseconds>(Clock::now() - call.since).count();
  return "the call of '" + call.function + "' on worker '" + membership_.name(call.to) + "', " +
         std::to_string(waited) + " ms ago,";
}

DISTGRAD_DECL void RawAgent::send(WorkerId to, Message message) {
  if (!is_closed_) send_(to, std::move(message), [](error_code) {});
}

DISTGRAD_DECL void RawAgent::carry_out(std::vector<ShutdownBarrier::Send> const& sends) {
  for (auto const& step : sends) {
    Writer out;
    out.number(step.round);
    out.number(step.calls);
    send(step.to, Message{.kind = step.kind, .metadata = out.take()});
  }
}

}  // namespace distgrad
