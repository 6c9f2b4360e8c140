#pragma once
#include <distgrad/observe/observer.hpp>
#include <distgrad/rpc/agent.hpp>
#include <distgrad/rpc/handler_scope.hpp>
#include <distgrad/rpc/traffic.hpp>
#include <distgrad/wire/error_frame.hpp>

namespace distgrad {

DISTGRAD_DECL RpcAgent::RpcAgent(std::shared_ptr<Host> host, Membership membership,
                                 std::chrono::nanoseconds rpc_timeout)
    : host_(std::move(host)),
      observer_(host_->observer()),
      membership_(std::move(membership)),
      rpc_timeout_(rpc_timeout),
      caller_(membership_, host_->clock()),
      dispatcher_(*host_, membership_) {
  dispatcher_.on(FrameKind::call,
                 [this](WorkerId from, Message m) { on_call(from, std::move(m)); });
  for (auto kind : {FrameKind::reply, FrameKind::error_reply}) {
    dispatcher_.on(kind,
                   [this](WorkerId from, Message m) { caller_.answered(from, std::move(m)); });
  }
  dispatcher_.on_peer_lost([this](WorkerId peer, error_code why) { log_lost(peer, why); });
  dispatcher_.on_peer_lost([this](WorkerId peer, error_code why) { caller_.fail_peer(peer, why); });
}

DISTGRAD_DECL void RpcAgent::log_lost(WorkerId peer, error_code why) const {
  auto const name = membership_.name(peer);
  if (why == errc::closed) {
    return host_->log().write(LogLevel::info, "rpc", "a peer left", {{"peer", name}});
  }
  host_->log().write(LogLevel::warning, "rpc", "a peer was lost",
                     {{"peer", name}, {"error", error_name(why)}, {"reason", why.message()}});
}

DISTGRAD_DECL void RpcAgent::set_rpc_timeout(std::chrono::nanoseconds timeout) {
  if (timeout < timeout.zero()) {
    throw Error(errc::invalid_argument, "the rpc timeout must not be negative; 0 means no limit");
  }
  rpc_timeout_.store(timeout);
}

namespace detail {

/// Whether `error` says that the callee declined the request without looking at its values.
inline bool was_refused_unread(std::exception_ptr const& error) {
  auto const code = describe(error).code;
  return code == errc::unknown_function || code == errc::signature_mismatch ||
         code == errc::refused || code == errc::bad_message;
}

}  // namespace detail

DISTGRAD_DECL CallId RpcAgent::send_call(FrameKind kind, std::string_view function,
                                         std::optional<std::chrono::nanoseconds> timeout,
                                         Draft draft, OnResult on_result) {
  bounds::unsent_bytes.require_room(unsent_bytes_.load());
  auto place = places_.take();
  auto const to = draft.to();
  auto const state = interceptor_ ? interceptor_->current() : nullptr;
  auto message = draft.seal(kind, {}, *host_, interceptor_, state, true);
  auto probe = CallProbe::of_made(observer_, function, to);
  if (probe) probe.sent(frame_bytes(message));
  if (kind == FrameKind::rref_create) probe.is_only_acknowledged();
  auto* const id_place = probe.id_place();
  auto const call = caller_.begin(
      to, function, timeout.value_or(rpc_timeout()),
      [this, to, function, on_result = std::move(on_result), undo = draft.take_if_undelivered(),
       place = std::move(place),
       probe = std::move(probe)](std::exception_ptr error, Message answer) mutable {
        place.reset();  // who sees the answer may call again
        on_answer(function, std::move(error), to, std::move(answer), on_result, undo, probe);
      },
      id_place);
  message.call = call;
  if (caller_.is_turn_overdue()) host_->wake();
  send(to, std::move(message), [this, call, to, function](error_code code) {
    if (!code) return;
    auto const text = "the call of '" + std::string(function) + "' could not be sent to worker '" +
                      membership_.name(to) + "': " + code.message();
    caller_.fail(call, std::make_exception_ptr(Error(code, text)));
  });
  return call;
}

DISTGRAD_DECL void RpcAgent::send(WorkerId to, Message message, SendCompletion done) {
  if (bounds::unsent_bytes.most == 0) return host_->send(to, std::move(message), std::move(done));
  auto const header = message.header();
  auto const bytes = static_cast<std::size_t>(header.metadata_bytes + header.payload_bytes);
  unsent_bytes_ += bytes;
  host_->send(to, std::move(message),
              [this, bytes, done = std::move(done)](error_code code) mutable {
                unsent_bytes_ -= bytes;
                done(code);
              });
}

DISTGRAD_DECL void RpcAgent::on_answer(std::string_view function, std::exception_ptr error,
                                       WorkerId from, Message message, OnResult& on_result,
                                       std::vector<unique_function<void()>>& undo,
                                       CallProbe& probe) {
  if (probe && !error) probe.received(frame_bytes(message));
  if (!error && message.kind == FrameKind::error_reply) {
    Reader in(message.metadata);
    auto e = read_error(in);
    error = std::make_exception_ptr(
        RemoteError(e.code, std::move(e.worker), std::move(e.function), e.call, std::move(e.text)));
    if (detail::was_refused_unread(error)) Draft::run_all(undo);
  }
  if (!error) {
    try {
      Arrival arrival(from, std::move(message), 0);
      arrival.open(*host_, interceptor_, false);
      CallStateScope scope(interceptor_, arrival.state());
      auto decoder = arrival.decoder(services_);
      probe.end({});  // before the result is seen: whoever has it finds the call counted
      on_result(nullptr, &decoder);
      return;
    } catch (...) {
      auto const report = describe(std::current_exception(), errc::bad_value);
      error = std::make_exception_ptr(
          Error(report.code, "the answer of '" + std::string(function) + "' from worker '" +
                                 membership_.name(from) + "' cannot be read: " + report.text));
    }
  }
  if (probe) probe.end(describe(error).code);
  on_result(std::move(error), nullptr);
}

DISTGRAD_DECL void RpcAgent::on_call(WorkerId from, Message message) {
  Reader in(message.metadata);
  auto const name = in.text_view();
  auto const signature = in.number<std::uint64_t>();
  auto const call = message.call;
  FunctionEntry const* function = nullptr;
  try {
    if (!in.ok()) throw Error(errc::bad_message, "the call is malformed");
    function = &registry_.find(name, signature);
  } catch (...) {
    answer_error(from, call, name, std::current_exception());
    return;
  }
  auto const prefix_bytes = message.metadata.size() - in.remaining_bytes();
  auto reply = [this, from, call, function](std::exception_ptr error, BoundCall* bound,
                                            CallState const& state) {
    try {
      if (error) std::rethrow_exception(error);
      Draft draft(from, services_);
      auto out = draft.encoder();
      bound->encode_result(out);
      answer(from, call, std::move(draft), state);
    } catch (...) {
      answer_error(from, call, function->name, std::current_exception());
    }
  };
  invoke(*function, Arrival(from, std::move(message), prefix_bytes), std::move(reply));
}

/// A function on its way through the compute pool: decoded, held back until what its arguments
/// wait for has happened, run, and handed to `on_invoked`. Keeps itself alive through the
/// continuations it leaves behind.
class RpcAgent::Invocation : public std::enable_shared_from_this<RpcAgent::Invocation> {
 public:
  Invocation(RpcAgent& agent, FunctionEntry const& function, Arrival arrival, OnInvoked on_invoked)
      : agent_(agent),
        function_(function),
        arrival_(std::move(arrival)),
        on_invoked_(std::move(on_invoked)),
        probe_(CallProbe::of_served(agent.observer(), function.name, arrival_.from(),
                                    arrival_.call())) {
    if (arrival_.kind() == FrameKind::rref_create) probe_.is_only_acknowledged();
    ++agent_.running_;
  }
  ~Invocation() {
    --agent_.running_;
    agent_.host().wake();
  }

  void decline(std::exception_ptr const& error) {
    try {
      arrival_.open(agent_.host(), nullptr, true);
    } catch (...) {  // what could be read was
    }
    drop_arguments();
    finish(error);
  }
  void decode() {
    probe_.start();
    try {
      open();
      CallStateScope scope(agent_.interceptor(), arrival_.state());
      auto decoder = arrival_.decoder(agent_.services());
      bound_ = function_.bind(decoder);
      if (!values_end(decoder)) throw Error(errc::bad_value, "the arguments are malformed");
      wait_for(std::move(decoder.conditions));
    } catch (...) {
      finish(std::current_exception());
    }
  }

 private:
  void open() {
    try {
      arrival_.open(agent_.host(), agent_.interceptor(), true);
    } catch (...) {
      drop_arguments();
      throw;
    }
  }
  /// Even a call that does not run may have brought remote references, which want to be counted
  /// out.
  void drop_arguments() noexcept {
    try {
      auto decoder = arrival_.decoder(agent_.services());
      function_.bind(decoder);
    } catch (...) {  // malformed: what could be read was
    }
  }
  /// Runs the function once all conditions are met; the first error wins.
  void wait_for(std::vector<Condition> conditions) {
    if (conditions.empty()) return run();
    waiting_.store(conditions.size());
    for (auto& condition : conditions) {
      condition([self = shared_from_this()](std::exception_ptr error) { self->met(error); });
    }
  }
  void met(std::exception_ptr const& error) {
    if (error && !failed_.exchange(true)) error_ = error;
    if (waiting_.fetch_sub(1) != 1) return;
    agent_.host().submit(priority, [self = shared_from_this()] {
      self->error_ ? self->finish(self->error_) : self->run();
    });
  }
  void run() {
    CallStateScope scope(agent_.interceptor(), arrival_.state());
    HandlerScope handler(agent_, arrival_.from());
    bound_->run([self = shared_from_this()](std::exception_ptr error) { self->finish(error); });
  }
  void finish(std::exception_ptr error) {
    CallStateScope scope(agent_.interceptor(), arrival_.state());
    if (probe_) probe_.end(distgrad::describe(error).code);
    on_invoked_(error, error ? nullptr : bound_.get(), arrival_.state());
  }

 public:
  /// User functions run before backward work that is ready at the same time: others wait for them.
  static constexpr std::uint64_t priority = ~std::uint64_t{0};

 private:
  RpcAgent& agent_;
  FunctionEntry const& function_;
  Arrival arrival_;
  OnInvoked on_invoked_;
  CallProbe probe_;
  std::unique_ptr<BoundCall> bound_;
  std::atomic<std::size_t> waiting_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

DISTGRAD_DECL void RpcAgent::invoke(FunctionEntry const& function, Arrival arrival,
                                    OnInvoked on_invoked) {
  bool const is_busy = !bounds::calls.has_room(running_.load());
  if (is_busy || !bounds::unsent_bytes.has_room(unsent_bytes_.load())) {
    auto const& bound = is_busy ? bounds::calls : bounds::unsent_bytes;
    return decline(function, std::move(arrival), std::move(on_invoked),
                   std::make_exception_ptr(bound.exceeded()));
  }
  auto invocation =
      std::make_shared<Invocation>(*this, function, std::move(arrival), std::move(on_invoked));
  host_->submit(Invocation::priority,
                [invocation = std::move(invocation)] { invocation->decode(); });
}

DISTGRAD_DECL void RpcAgent::decline(FunctionEntry const& function, Arrival arrival,
                                     OnInvoked on_invoked, std::exception_ptr error) {
  std::make_shared<Invocation>(*this, function, std::move(arrival), std::move(on_invoked))
      ->decline(error);
}

DISTGRAD_DECL void RpcAgent::answer(WorkerId to, CallId call, Draft draft, CallState const& state) {
  auto message = draft.seal(FrameKind::reply, call, *host_, interceptor_, state, false);
  draft.take_if_undelivered();  // only the loss of the peer could keep it from being read
  send(to, std::move(message), [this, to, call](error_code code) {
    // The peer is there, and would wait for ever.
    if (code == errc::frame_too_large) {
      answer_error(to, call, {},
                   std::make_exception_ptr(Error(code, "the answer: " + code.message())));
    }
  });
}

DISTGRAD_DECL void RpcAgent::answer_error(WorkerId to, CallId call, std::string_view function,
                                          std::exception_ptr const& error) noexcept {
  try {
    auto const report = distgrad::describe(error);
    Writer out;
    write_error(out,
                {report.code, membership_.self().name, std::string(function), call, report.text});
    if (host_->log().wants(LogLevel::info)) {
      host_->log().write(LogLevel::info, "rpc", "a function failed",
                         {{"function", function},
                          {"peer", membership_.name(to)},
                          {"call", call.value},
                          {"error", error_name(report.code)},
                          {"reason", report.text}});
    }
    host_->send(to, Message{.kind = FrameKind::error_reply, .call = call, .metadata = out.take()});
  } catch (std::exception const& e) {
    host_->log().write(LogLevel::error, "rpc", "an error could not be reported to the caller",
                       {{"function", function}, {"call", call.value}, {"reason", e.what()}});
  }
}

}  // namespace distgrad
