#pragma once
#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <distgrad/raw/raw_agent.hpp>
#include <distgrad/rendezvous/static_rendezvous.hpp>
#include <distgrad/rendezvous/tcp_rendezvous.hpp>

namespace distgrad {

/// A worker of a group without libtorch, for programs that have no room for it, or no exceptions:
/// calls functions of the engines in the group with plain numbers and buffers, and answers their
/// calls. It takes no part in backward passes. Errors are values; nothing waits longer than its
/// time limit; there is no thread, `poll` and whoever waits do the work.
///
///     auto joined = RawWorker<TcpTransport>::join({.name = "sensor", .rank = 1, .world_size = 2});
///     if (!joined) return report(joined.error());
///     auto y = (*joined)->call<RawTensor(RawTensor)>("trainer", "predict", samples);
///
/// An engine's program names such functions with `define`: `engine.define<"predict", &predict>()`.
/// @threads one thread.
template <TransportPolicy Transport>
class RawWorker {
 public:
  struct Options {
    /// Name by which others call this worker, unique in the group; `worker<rank>` if empty.
    std::string name = {};
    int rank = 0;
    int world_size = 1;
    /// Where rank 0 listens while the group meets; the others connect there.
    std::string master_addr = "127.0.0.1";
    std::uint16_t master_port = 29500;
    /// All workers, where they are known in advance; nobody is asked then.
    std::vector<PeerAddress> group = {};
    std::chrono::nanoseconds rendezvous_timeout = std::chrono::seconds(60);
    std::string job_secret = {};
    /// Time limit of a call that names none; zero means none.
    std::chrono::nanoseconds rpc_timeout = std::chrono::seconds(60);
    /// Sizes this worker accepts from its peers.
    FrameLimits limits = {FrameLimits::bounded(1 << 20), FrameLimits::bounded(64 << 20),
                          static_cast<std::uint32_t>(FrameLimits::bounded(1 << 10))};
    typename Transport::Options transport = {};
  };

  /// Meets the group. The transport is made from its options first, and what its constructor would
  /// throw ends a program without exceptions.
  static Result<std::unique_ptr<RawWorker>> join(Options options) {
    if (options.name.empty()) options.name = "worker" + std::to_string(options.rank);
    if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
      return ErrorReport{errc::invalid_argument, "rank " + std::to_string(options.rank) +
                                                     " is not within a world size of " +
                                                     std::to_string(options.world_size)};
    }
    std::unique_ptr<RawWorker> worker(new RawWorker(std::move(options)));
    if (auto failed = worker->meet()) return std::move(*failed);
    return worker;
  }
  ~RawWorker() { stop(); }
  RawWorker(RawWorker const&) = delete;
  RawWorker& operator=(RawWorker const&) = delete;

  WorkerInfo const& info() const { return agent_->membership().self(); }
  std::span<WorkerInfo const> group() const { return agent_->membership().group(); }
  /// Calls that are not answered.
  std::size_t pending_calls() const { return agent_->pending(); }

  /// Runs `function` on the target's worker and waits for its result; calls of others are answered
  /// meanwhile.
  /// @tparam Function what it takes and returns, as in `RawTensor(RawTensor, double)`.
  /// @param target a name, a rank, or `within(timeout, worker)`.
  template <class Function, class... Args>
  auto call(CallTarget const& target, std::string_view function, Args const&... arguments)
      -> Result<typename RawFunction<Function>::Returned> {
    std::optional<Result<typename RawFunction<Function>::Returned>> result;
    async_call<Function>(target, function, arguments...,
                         [&result](auto outcome) { result.emplace(std::move(outcome)); });
    while (!result) poll(time_point::max());
    return std::move(*result);
  }

  /// The same without waiting. The last argument is called once with the `Result`, by `poll` or
  /// whoever waits; at once if the call cannot be made.
  template <class Function, class... ArgsAndDone>
  void async_call(CallTarget const& target, std::string_view function,
                  ArgsAndDone&&... arguments_and_done) {
    constexpr auto count = sizeof...(ArgsAndDone) - 1;
    begin<Function>(target, function,
                    std::forward_as_tuple(std::forward<ArgsAndDone>(arguments_and_done)...),
                    std::make_index_sequence<count>());
  }

  /// Others may call `name`, with the types of `Function`, from now on.
  /// @param run takes the arguments; returns the result or a `Result`.
  template <class Function, class Run>
  void define(std::string name, Run run) {
    agent_->define(std::move(name), RawFunction<Function>::signature, handler<Function>(run));
  }

  /// Handles what arrives, waiting for it until `until`, and what time brings; by default without
  /// waiting. @return how much there was.
  std::size_t poll(time_point until = time_point::min()) {
    auto const done = agent_->work(Clock::now());
    if (done != 0) until = time_point::min();
    transport_.run_until(std::min(until, agent_->next_deadline()));
    return done + agent_->work(Clock::now());
  }
  /// What a loop of the program's own waits on before the next `poll`, at most for a while.
  std::vector<pollfd> native_handles()
    requires(WaitableTransport<Transport>)
  {
    return transport_.native_handles();
  }

  /// Ends the group together: serves until every worker has called `shutdown`, then stops.
  /// @param timeout zero means no limit. @return `timeout`; the worker goes on then.
  Result<void> shutdown(std::chrono::nanoseconds timeout = std::chrono::minutes(5)) {
    agent_->leave();
    for (auto const deadline = Deadline::after(timeout); !agent_->has_left();) {
      if (deadline.has_passed()) {
        return ErrorReport{errc::timeout, "shutdown of worker '" + info().name +
                                              "' waited for the group; every worker has to call "
                                              "shutdown()"};
      }
      poll(deadline.at);
    }
    stop();
    return {};
  }
  /// Ends this worker at once: calls fail with `errc::closed`; peers see it leave. Twice is once.
  void stop() noexcept {
    if (agent_) agent_->close();
    transport_.close();
  }

 private:
  explicit RawWorker(Options options)
      : options_(std::move(options)), transport_(std::move(options_.transport)) {}

  std::optional<ErrorReport> meet() {
    PeerAddress const self{{options_.name, WorkerId{static_cast<std::uint32_t>(options_.rank)},
                            Incarnation{std::random_device()()}},
                           transport_.local_endpoint()};
    auto group = exchange(self);
    if (!group) return group.error();
    std::vector<WorkerInfo> infos;
    for (auto const& peer : *group) infos.push_back(peer.info);
    agent_.emplace(self.info.id, std::move(infos),
                   [this](WorkerId to, Message message, SendCompletion done) {
                     transport_.async_send(to, std::move(message), std::move(done));
                   });
    transport_.start({.self = self.info.id,
                      .group = std::move(*group),
                      .sink = &*agent_,
                      .limits = options_.limits,
                      .job_secret = options_.job_secret});
    return std::nullopt;
  }
  Result<std::vector<PeerAddress>> exchange(PeerAddress const& self) {
    auto const size = static_cast<std::uint32_t>(options_.world_size);
    auto const deadline = Deadline::after(options_.rendezvous_timeout);
    if (!options_.group.empty()) {
      return StaticRendezvous(options_.group).try_exchange(self, size, deadline);
    }
    return TcpRendezvous({.master_address = options_.master_addr,
                          .master_port = options_.master_port,
                          .job_secret = options_.job_secret})
        .try_exchange(self, size, deadline);
  }

  template <class Function, class All, std::size_t... I>
  void begin(CallTarget const& target, std::string_view function, All all,
             std::index_sequence<I...>) {
    using Shape = RawFunction<Function>;
    auto done = std::get<sizeof...(I)>(std::move(all));
    RawValues values;
    RawEncoder out{values.writer, values.tensors};
    Shape::encode(out, std::get<I>(all)...);
    for (auto const& tensor : values.tensors) {
      if (tensor.is_whole()) continue;
      return done(Result<typename Shape::Returned>(ErrorReport{
          errc::invalid_argument,
          "a tensor for '" + std::string(function) + "' has not the elements its sizes say"}));
    }
    auto const timeout = target.timeout().value_or(options_.rpc_timeout);
    agent_->call(
        target.worker(), function, make_raw_call(function, Shape::signature, std::move(values)),
        Deadline::after(timeout), [done = std::move(done)](Result<Message> answer) mutable {
          done(read_result<typename Shape::Returned>(answer));
        });
  }

  template <class R>
  static Result<R> read_result(Result<Message> const& answer) {
    if (!answer) return answer.error();
    auto values = read_raw_values(*answer, 0);
    if (!values) return values.error();
    Reader in(values->bytes);
    [[maybe_unused]] RawDecoder from{in, values->tensors};
    if constexpr (std::is_void_v<R>) {
      if (in.at_end()) return {};
    } else {
      auto value = RawCodec<R>::decode(from);
      if (in.ok() && in.at_end()) return value;
    }
    return ErrorReport{errc::bad_value, "the result is malformed"};
  }

  template <class Function, class Run>
  static RawHandler handler(Run run) {
    using Shape = RawFunction<Function>;
    return [run = std::move(run)](RawDecoder& in,
                                  RawEncoder& out) mutable -> std::optional<ErrorReport> {
      auto arguments = Shape::decode(in);
      if (!in.reader.ok() || !in.reader.at_end()) {
        return ErrorReport{errc::bad_value, "the arguments are malformed"};
      }
      using R = typename Shape::Returned;
      if constexpr (std::is_void_v<R> &&
                    std::is_void_v<decltype(std::apply(run, std::move(arguments)))>) {
        std::apply(run, std::move(arguments));
        return std::nullopt;
      } else {
        Result<R> result = std::apply(run, std::move(arguments));
        if (!result) return result.error();
        if constexpr (!std::is_void_v<R>) RawCodec<R>::encode(out, *result);
        for (auto const& tensor : out.tensors) {
          if (!tensor.is_whole()) {
            return ErrorReport{errc::internal, "the result has not the elements its sizes say"};
          }
        }
        return std::nullopt;
      }
    };
  }

  Options options_;
  Transport transport_;
  std::optional<RawAgent> agent_;
};

}  // namespace distgrad
