#pragma once
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/result.hpp>
#include <distgrad/core/unique_function.hpp>
#include <distgrad/raw/raw_codec.hpp>
#include <distgrad/raw/raw_message.hpp>
#include <distgrad/rpc/call_target.hpp>
#include <distgrad/rpc/membership.hpp>
#include <distgrad/rpc/shutdown_barrier.hpp>
#include <distgrad/transport/concept.hpp>

namespace distgrad {

/// Receives the answer of a call, or why there is none. Called once, by `RawAgent::work`.
using OnRawAnswer = unique_function<void(Result<Message>)>;
/// Runs a function: reads its arguments and writes its result, or says what is wrong.
using RawHandler = unique_function<std::optional<ErrorReport>(RawDecoder&, RawEncoder&)>;

/// A raw worker's calls, functions and part in the end of the group, without I/O: a transport hands
/// it messages, and it is given a function that sends. What has arrived is handled by `work`, so
/// that handlers may call again. @threads one thread.
class RawAgent final : public MessageSink {
 public:
  using Send = unique_function<void(WorkerId to, Message message, SendCompletion done)>;

  RawAgent(WorkerId self, std::vector<WorkerInfo> group, Send send)
      : membership_(self, std::move(group)),
        send_(std::move(send)),
        barrier_(self, static_cast<std::uint32_t>(membership_.group().size())) {}

  Membership const& membership() const { return membership_; }

  /// Sends a call. @param deadline when it is given up.
  void call(WorkerRef const& to, std::string_view function, Message request, Deadline deadline,
            OnRawAnswer on_answer);
  /// Calls of `name` with that signature are run by `handler`; one defined before goes.
  void define(std::string name, std::uint64_t signature, RawHandler handler);

  /// Handles what has arrived and what time brings. @return how many messages and deadlines.
  std::size_t work(time_point now);
  /// When `work` has something to do at the latest.
  time_point next_deadline() const;
  std::size_t pending() const { return pending_.size(); }

  /// Says that this worker is done; it goes on serving until `has_left`.
  void leave();
  bool has_left() const { return barrier_.has_left(); }
  /// Fails all calls. Nothing is sent any more.
  void close();

  std::vector<Buffer> landing(FrameHeader const& header, std::span<std::byte const> metadata,
                              std::span<std::uint64_t const> lengths) noexcept override;
  void on_message(WorkerId from, Message message) noexcept override;
  void on_peer_lost(WorkerId peer, error_code why) noexcept override;

 private:
  struct Pending {
    WorkerId to;
    std::string function;
    time_point since;
    Deadline deadline;
    OnRawAnswer on_answer;
  };
  struct Function {
    std::uint64_t signature;
    RawHandler handler;
  };
  /// Something that happened to a call, without an answer.
  struct Failure {
    CallId call;
    error_code code;
  };

  void handle(WorkerId from, Message message);
  void run(WorkerId from, Message const& message);
  std::optional<ErrorReport> try_run(std::string_view name, std::uint64_t signature,
                                     Message const& message, std::size_t prefix_bytes,
                                     RawValues& result);
  void answer_error(WorkerId to, CallId call, std::string_view function, ErrorReport const& error);
  void take_answer(WorkerId from, Message message);
  void take_barrier(WorkerId from, Message const& message);
  void lose(WorkerId peer, error_code why);
  void expire(time_point now);
  template <class Condition>
  void fail_if(Condition condition, error_code code);
  void fail(CallId call, error_code code);
  void finish(std::map<CallId, Pending>::iterator call, Result<Message> outcome);
  std::string describe(Pending const& call) const;
  void send(WorkerId to, Message message);
  void carry_out(std::vector<ShutdownBarrier::Send> const& sends);

  Membership membership_;
  Send send_;
  ShutdownBarrier barrier_;
  bool is_closed_ = false;
  std::uint64_t last_call_ = 0;
  std::map<CallId, Pending> pending_;
  std::unordered_map<std::string, Function> functions_;
  // What the transport brought, until `work` handles it.
  std::deque<std::pair<WorkerId, Message>> arrived_;
  std::deque<Failure> failures_;
  std::deque<std::pair<WorkerId, error_code>> lost_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/raw/impl/raw_agent.ipp>
#endif
