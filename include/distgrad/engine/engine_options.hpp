#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <distgrad/core/deadline.hpp>
#include <distgrad/core/peer_address.hpp>
#include <distgrad/observe/log.hpp>
#include <distgrad/rendezvous/concept.hpp>
#include <distgrad/tensor/device_map.hpp>
#include <distgrad/wire/frame.hpp>

namespace distgrad {

/// How a worker finds the others: any `RendezvousPolicy`, or none.
class Rendezvous {
 public:
  Rendezvous() = default;
  /// Takes any type with a contract; the compiler says what it lacks of a `RendezvousPolicy`.
  template <class Policy, class = typename Policy::contract,
            std::size_t = sizeof(RendezvousCheck<Policy>)>
  Rendezvous(Policy policy)
      : exchange_([policy = std::make_shared<Policy>(std::move(policy))](
                      PeerAddress const& self, std::uint32_t world_size, Deadline deadline) {
          return policy->exchange(self, world_size, deadline);
        }) {}

  explicit operator bool() const { return bool(exchange_); }
  /// The group in the order of ranks. @throws Error before the deadline, saying who and where.
  std::vector<PeerAddress> exchange(PeerAddress const& self, std::uint32_t world_size,
                                    Deadline deadline) const {
    return exchange_(self, world_size, deadline);
  }

 private:
  std::function<std::vector<PeerAddress>(PeerAddress const&, std::uint32_t, Deadline)> exchange_;
};

/// What a `DistEngine` is made from. Every default is good for a job on one host.
/// @tparam Transport, Queues, Serializer the engine's policies, each with options of its own.
template <class Transport, class Queues, class Serializer>
struct EngineOptions {
  /// Name by which others call this worker, unique in the group; `worker<rank>` if empty.
  std::string name = {};
  int rank = 0;
  int world_size = 1;

  /// Where rank 0 listens while the group meets; the others connect there.
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 29500;
  /// Replaces the meeting at `master_addr` when set.
  Rendezvous rendezvous = {};
  /// How long to wait for the whole group.
  std::chrono::nanoseconds rendezvous_timeout = std::chrono::seconds(60);
  /// Shared by the workers of a job; connections without it are refused.
  std::string job_secret = {};

  /// Time limit of a call that names none; zero means none.
  std::chrono::nanoseconds rpc_timeout = std::chrono::seconds(60);
  /// How long a backward pass in SMART mode may go without progress before the workers ask one
  /// another which calls of the context take part. Until then it expects that all do.
  std::chrono::nanoseconds discovery_delay = std::chrono::milliseconds(1);
  /// How often a backward pass in FAST mode that waits is looked at for a standstill.
  std::chrono::nanoseconds watchdog_interval = std::chrono::seconds(1);
  /// To which devices of its peers the tensors of this worker's devices go, by the peers' names.
  /// Results come back the other way, and gradients to where the tensor came from.
  DeviceMaps device_maps = {};
  /// Sizes this worker accepts from its peers.
  FrameLimits limits = {};
  /// Where the log goes: any function that takes a `LogRecord`, such as `log_json_to(file)`;
  /// nowhere if empty.
  LogSink log = log_to_stderr;
  /// Less important records are not even made.
  LogLevel log_level = LogLevel::warning;
  /// Whether calls, traffic, passes and tasks are counted: what `Worker::metrics_text` and a
  /// `LiveServer` show.
  bool metrics = false;
  /// How many calls, passes and gradient messages are recorded for `Worker::trace`; 0 for none.
  /// A traced engine counts as with `metrics`. The variable DISTGRAD_TRACE traces any engine.
  std::size_t trace_events = 0;
  /// Read for all deadlines; the system's steady clock if null.
  std::shared_ptr<TimeSource const> clock = {};

  typename Transport::Options transport = {};
  typename Queues::Options queues = {};
  typename Serializer::Options serializer = {};
};

}  // namespace distgrad
