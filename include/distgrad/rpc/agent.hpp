#pragma once
#include <atomic>
#include <memory>

#include <distgrad/config.hpp>
#include <distgrad/core/bounds.hpp>
#include <distgrad/core/services.hpp>
#include <distgrad/rpc/caller.hpp>
#include <distgrad/rpc/dispatcher.hpp>
#include <distgrad/rpc/draft.hpp>
#include <distgrad/rpc/function.hpp>
#include <distgrad/rpc/host.hpp>
#include <distgrad/rpc/interceptor.hpp>
#include <distgrad/rpc/membership.hpp>
#include <distgrad/rpc/registry.hpp>

namespace distgrad {

class CallProbe;

/// Receives an answer's values (or the error of the call), on the I/O thread, under the answer's
/// call state. The decoder is valid during the call and null with an error.
using OnResult = unique_function<void(std::exception_ptr, Decoder*)>;
/// Receives a function that was run here, or the error it threw. The call is null with an error.
using OnInvoked = unique_function<void(std::exception_ptr, BoundCall*, CallState const&)>;

/// One worker's end of remote procedure calls: sends calls and brings back their answers, runs
/// the calls of others. Everything here is independent of the policies.
///
/// The way of a call: `send_call` (caller's thread) -> transport -> `on_call` (callee's I/O
/// thread) -> `invoke` (callee's compute pool) -> `answer` -> transport -> `on_answer` (caller's
/// I/O thread). @threads safe: shared object.
class RpcAgent {
 public:
  RpcAgent(std::shared_ptr<Host> host, Membership membership, std::chrono::nanoseconds rpc_timeout);

  Membership const& membership() const { return membership_; }
  Host& host() const { return *host_; }
  std::shared_ptr<Host> const& shared_host() const { return host_; }
  Dispatcher& dispatcher() { return dispatcher_; }
  Caller& caller() { return caller_; }
  Caller const& caller() const { return caller_; }
  Registry& registry() { return registry_; }
  /// What codecs may ask of this engine; higher rooms add theirs before the engine starts.
  Services& services() { return services_; }
  /// Who watches this engine, or null.
  Observer* observer() const { return observer_; }

  Interceptor* interceptor() const { return interceptor_; }
  void set_interceptor(Interceptor* interceptor) { interceptor_ = interceptor; }

  /// Time limit of calls that name none; each call takes the value at the moment it is made.
  std::chrono::nanoseconds rpc_timeout() const { return rpc_timeout_.load(); }
  void set_rpc_timeout(std::chrono::nanoseconds timeout);

  /// Sends a request that is answered by `reply` or `error_reply`.
  /// @param function shown in errors; must outlive the call.
  /// @return the call's id, for `Caller::withdraw`.
  CallId send_call(FrameKind kind, std::string_view function,
                   std::optional<std::chrono::nanoseconds> timeout, Draft draft,
                   OnResult on_result);

  /// Runs, on the compute pool, the function an arrived request asks for. When this worker serves
  /// as many calls as it may, declines it.
  void invoke(FunctionEntry const& function, Arrival arrival, OnInvoked on_invoked);
  /// Ends a request with `error` instead; remote references among its arguments are counted out.
  void decline(FunctionEntry const& function, Arrival arrival, OnInvoked on_invoked,
               std::exception_ptr error);

  /// Answers a request. Any thread.
  void answer(WorkerId to, CallId call, Draft draft, CallState const& state);
  void answer_error(WorkerId to, CallId call, std::string_view function,
                    std::exception_ptr const& error) noexcept;

  /// Calls sent and not answered, plus calls of others that run here.
  std::size_t active() const { return caller_.pending() + running_.load(); }

 private:
  class Invocation;

  /// What waits to be sent is counted for DISTGRAD_MAX_UNSENT_BYTES.
  void send(WorkerId to, Message message, SendCompletion done);
  void log_lost(WorkerId peer, error_code why) const;
  void on_call(WorkerId from, Message message);
  void on_answer(std::string_view function, std::exception_ptr error, WorkerId from,
                 Message message, OnResult& on_result, std::vector<unique_function<void()>>& undo,
                 CallProbe& probe);

  std::shared_ptr<Host> host_;
  Observer* const observer_;
  Membership membership_;
  std::atomic<std::chrono::nanoseconds> rpc_timeout_;
  Interceptor* interceptor_ = nullptr;
  Services services_;
  Registry registry_;
  Places places_{bounds::calls};
  Caller caller_;
  Dispatcher dispatcher_;
  std::atomic<std::size_t> running_{0}, unsent_bytes_{0};
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rpc/impl/agent.ipp>
#endif
