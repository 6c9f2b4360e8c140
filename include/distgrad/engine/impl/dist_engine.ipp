#pragma once
#include <distgrad/engine/dist_engine.hpp>

#include <c10/core/GradMode.h>

#include <distgrad/queue/stream_scope.hpp>

namespace distgrad {

/// The turns of an engine's loop: one handles what arrived and what time brought.
template <class Transport, class Queues, class Serializer>
struct DistEngine<Transport, Queues, Serializer>::Turns final : Host::Engine {
  Turns(Host& h, std::shared_ptr<EngineCore> c) : host(h), core(std::move(c)) {}

  /// For who waits: a turn, or a rest while another thread takes them. That one leaves when it has
  /// what it waited for itself, so whoever rests has to come back.
  bool turn(time_point until) override {
    std::unique_lock lock(mutex, std::try_to_lock);
    if (lock) {
      steps_within({.until = until});
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }
  PollResult poll(PollBudget const& budget) {
    std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock) return {0, host.clock().now() + milliseconds(1)};  // another thread does the work
    auto const done = steps_within(budget);
    return {done, done != 0 ? time_point::min() : next_poll()};
  }
  time_point next_poll() {
    auto const next = core->next_turn();
    if constexpr (WaitableTransport<Transport>) {
      auto const now = host.clock().now();
      auto const longest = host.transport.longest_sleep();
      if (longest < time_point::max() - now) return std::min(next, now + longest);
    }
    return next;
  }
  std::size_t steps_within(PollBudget const& budget) {
    c10::AutoGradMode const on(true);  // the mode in which the caller waits is not that of handlers
    detail::PollAllowance left(budget, host.clock());
    auto const run_tasks = [this](std::size_t limit) { return host.run_tasks(limit); };
    auto done = left.spend(share_of_tasks(budget.steps), run_tasks);
    auto until = done == 0 ? std::min(budget.until, core->next_turn()) : time_point::min();
    done += left.spend(left.left(), [&](std::size_t limit) {
      return host.run_transport(std::exchange(until, time_point::min()), limit);
    });
    core->on_loop(host.clock().now());  // after the sleep: it may end what the caller waits for
    if (left.has_time()) done += left.spend(left.left(), run_tasks);
    return done;
  }
  /// Half of the steps; of an odd number the larger half every other time.
  std::size_t share_of_tasks(std::size_t steps) {
    rounds_up = !rounds_up;
    return steps / 2 + (rounds_up && steps % 2 != 0);
  }
  void run() {
    StreamScope const streams(host.queues.streams());  // what arrives is made on them
    while (!ending.load()) {
      core->on_loop(host.clock().now());
      host.transport.run_until(core->next_turn());
    }
  }

  Host& host;
  std::shared_ptr<EngineCore> core;
  std::recursive_mutex mutex;  // a handler that waits takes turns inside a turn
  bool rounds_up = false;
  std::atomic<bool> ending{false};
};

namespace detail {

inline void check_options(std::string const& name, int rank, int world_size,
                          std::chrono::nanoseconds rpc_timeout, FrameLimits const& limits) {
  if (!is_valid_worker_name(name)) {
    throw Error(errc::invalid_name,
                "worker name '" + name + "' must be 1 to 127 characters from A-Z a-z 0-9 _ : -");
  }
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    throw Error(errc::invalid_argument, "rank " + std::to_string(rank) +
                                            " is not within a world size of " +
                                            std::to_string(world_size));
  }
  if (int const most = DISTGRAD_MAX_PEERS; most != 0 && world_size - 1 > most) {
    throw Error(errc::limit_reached, "a world size of " + std::to_string(world_size) +
                                         " is more peers than the " + std::to_string(most) +
                                         " that DISTGRAD_MAX_PEERS allows");
  }
  if (!limits.are_allowed()) {
    throw Error(errc::limit_reached,
                "EngineOptions::limits are larger than DISTGRAD_MAX_FRAME_BYTES allows, " +
                    std::to_string(DISTGRAD_MAX_FRAME_BYTES));
  }
  if (rpc_timeout < rpc_timeout.zero()) {
    throw Error(errc::invalid_argument,
                "EngineOptions::rpc_timeout must not be negative; 0 means "
                "no limit");
  }
}

/// A group that meets at a loopback address is on one host: its transports need no other port.
template <class Options>
void prefer_loopback(Options& options) {
  if constexpr (requires { options.transport.bind_address; }) {
    auto const& at = options.master_addr;
    bool const local = at.starts_with("127.") || at == "localhost" || at == "::1";
    if (!local || options.rendezvous || !options.transport.bind_address.empty()) return;
    options.transport.bind_address = at == "localhost" ? "127.0.0.1" : at;
  }
}

inline DeviceRoutes routes_of(PeerAddress const& self, std::vector<PeerAddress> const& group,
                              bool has_maps) {
  if (has_maps && group[self.info.id.value].devices != self.devices) {
    throw Error(errc::not_supported, "the rendezvous of worker '" + self.info.name +
                                         "' does not pass on PeerAddress::devices, which device "
                                         "maps need");
  }
  return DeviceRoutes(self.info.id, group);
}

inline std::vector<WorkerInfo> infos_of(std::vector<PeerAddress> const& group) {
  std::vector<WorkerInfo> infos;
  for (auto const& peer : group) infos.push_back(peer.info);
  return infos;
}

inline void log_group(Log const& log, WorkerInfo const& self,
                      std::vector<PeerAddress> const& group) {
  log.write(LogLevel::info, "engine", "the group is complete",
            {{"rank", std::uint64_t(self.id.value)}, {"world_size", group.size()}});
  for (auto const& peer : group) {
    if (peer.info.id == self.id) continue;
    log.write(LogLevel::debug, "engine", "a peer joined",
              {{"peer", peer.info.name},
               {"rank", std::uint64_t(peer.info.id.value)},
               {"endpoint", peer.endpoint}});
  }
}

}  // namespace detail

template <class Transport, class Queues, class Serializer>
DistEngine<Transport, Queues, Serializer>::DistEngine(Options options) {
  if (options.name.empty()) options.name = "worker" + std::to_string(options.rank);
  detail::check_options(options.name, options.rank, options.world_size, options.rpc_timeout,
                        options.limits);
  detail::prefer_loopback(options);
  if constexpr (!Queues::is_inline) {  // or every small program would carry the writer
    trace_file_ = TraceFile::from_environment(WorkerId{std::uint32_t(options.rank)});
    if (trace_file_ && options.trace_events == 0) options.trace_events = TraceFile::default_events;
  }
  host_ = std::make_shared<Host>(typename Host::Options{
      std::move(options.transport), std::move(options.queues), std::move(options.serializer),
      Log(options.log, options.log_level, options.name), options.clock});

  PeerAddress const self{
      {options.name, WorkerId{std::uint32_t(options.rank)}, Incarnation{std::random_device()()}},
      host_->transport.local_endpoint(),
      DeviceProfile::of(options.device_maps).encode()};
  host_->log().write(LogLevel::info, "engine", "listening", {{"endpoint", self.endpoint}});
  auto rendezvous = options.rendezvous;
  if (!rendezvous && options.world_size > 1) {
    rendezvous = TcpRendezvous({.master_address = options.master_addr,
                                .master_port = options.master_port,
                                .job_secret = options.job_secret,
                                .bind_address = {},
                                .on_listening = {}});
  }
  auto const group = rendezvous ? rendezvous.exchange(self, std::uint32_t(options.world_size),
                                                      Deadline::after(options.rendezvous_timeout))
                                : std::vector<PeerAddress>{self};
  host_->device_routes = detail::routes_of(self, group, !options.device_maps.empty());

  if (options.metrics || options.trace_events != 0) {
    host_->watch_with(std::make_unique<Observer>(self.info.id, group, options.trace_events));
  }
  attach(std::make_shared<EngineCore>(
      host_, Membership(self.info.id, detail::infos_of(group)),
      EngineCore::Options{options.rpc_timeout,
                          {options.watchdog_interval, options.discovery_delay}}));
  turns_ = std::make_unique<Turns>(*host_, shared_core());
  host_->attach(&core().recorder(), turns_.get());
  host_->queues.on_submit([host = host_.get()] { host->wake(); });
  host_->transport.start({.self = self.info.id,
                          .group = group,
                          .sink = &core().agent().dispatcher(),
                          .limits = options.limits,
                          .job_secret = options.job_secret});
  detail::log_group(host_->log(), self.info, group);
  if constexpr (!Queues::is_inline) io_thread_ = std::thread([this] { turns_->run(); });
}

template <class Transport, class Queues, class Serializer>
auto DistEngine<Transport, Queues, Serializer>::from_environment(Options options) -> DistEngine {
  auto const found = RendezvousSettings::from_environment();
  options.rank = static_cast<int>(found.rank);
  options.world_size = static_cast<int>(found.world_size);
  options.master_addr = found.master_address;
  options.master_port = found.master_port;
  if (options.job_secret.empty()) options.job_secret = found.job_secret;
  return DistEngine(std::move(options));
}

template <class Transport, class Queues, class Serializer>
void DistEngine<Transport, Queues, Serializer>::shutdown(std::chrono::nanoseconds timeout) {
  if (turns_->ending.load()) return;
  auto const everybody_done = core().leave();
  if (timeout <= timeout.zero()) {
    everybody_done.wait();
  } else if (!everybody_done.wait_for(timeout)) {
    throw Error(errc::timeout, "shutdown of worker '" + name() + "' waited " +
                                   std::to_string(timeout.count() / 1'000'000) +
                                   " ms for the group" + core().describe_missing() +
                                   "; every worker has to call shutdown()");
  }
  everybody_done.get();
  stop();
}

template <class Transport, class Queues, class Serializer>
void DistEngine<Transport, Queues, Serializer>::stop() noexcept {
  std::call_once(stopped_, [this] {
    if (!turns_) return;  // the constructor threw
    core().close();
    host_->transport.close();
    turns_->ending.store(true);
    host_->wake();
    if (io_thread_.joinable()) io_thread_.join();
    host_->queues.stop();
    host_->detach();
    if constexpr (!Queues::is_inline) write_trace();
    host_->log().write(LogLevel::info, "engine", "the engine ended");
  });
}

template <class Transport, class Queues, class Serializer>
void DistEngine<Transport, Queues, Serializer>::write_trace() noexcept {
  if (!trace_file_) return;
  try {
    trace_file_.write(trace());
    host_->log().write(LogLevel::info, "engine", "wrote the trace", {{"path", trace_file_.path()}});
  } catch (std::exception const& e) {
    host_->log().write(LogLevel::error, "engine", "no trace was written",
                       {{"path", trace_file_.path()}, {"reason", e.what()}});
  }
}

}  // namespace distgrad
