#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <distgrad/core/deadline.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/peer_address.hpp>
#include <distgrad/core/unique_function.hpp>
#include <distgrad/observe/metrics.hpp>

namespace distgrad {

/// What watches one engine. An engine that is not watched has none, and pays one branch on a null
/// pointer wherever it would tell something.
///
/// The rooms above tell what happens through *probes*, begun where something begins and ended where
/// it ends. What a probe feeds is decided here: whoever adds another way of looking at an engine
/// adds it to the observer and to the probes, and no room above changes.
/// @threads safe: shared object.
class Observer {
 public:
  /// @param group in the order of ranks.
  Observer(WorkerId self, std::vector<PeerAddress> group)
      : self_(self), group_(std::move(group)), metrics_(group_.size()) {}

  WorkerInfo const& self() const { return group_[self_.value].info; }
  /// The group, with the endpoints by which transports reach one another.
  std::vector<PeerAddress> const& group() const { return group_; }
  std::chrono::steady_clock::time_point since() const { return since_; }

  Metrics& metrics() { return metrics_; }
  Metrics const& metrics() const { return metrics_; }

  /// A message is handed to the transport, or came from it.
  void sent(WorkerId to, TrafficKind kind, std::uint64_t bytes) noexcept {
    if (to.value < group_.size()) metrics_.traffic[to.value].sent[std::size_t(kind)].add(bytes);
  }
  void received(WorkerId from, TrafficKind kind, std::uint64_t bytes) noexcept {
    if (from.value < group_.size()) {
      metrics_.traffic[from.value].received[std::size_t(kind)].add(bytes);
    }
  }

  void lost(WorkerId peer) noexcept {
    if (peer.value < group_.size()) metrics_.traffic[peer.value].is_lost.store(true);
  }

 private:
  WorkerId self_;
  std::vector<PeerAddress> group_;
  std::chrono::steady_clock::time_point since_ = Clock::now();
  Metrics metrics_;
};

/// A call from beginning to end, on either side. One that is destroyed before its end was
/// cancelled.
/// @threads one thread at a time.
class CallProbe {
 public:
  CallProbe() = default;
  CallProbe(CallProbe&& other) noexcept
      : series_(std::exchange(other.series_, nullptr)),
        has_ended_(other.has_ended_),
        began_(other.began_) {}
  CallProbe& operator=(CallProbe&&) = delete;
  ~CallProbe() {
    if (!has_ended_) end(errc::cancelled);
  }

  /// This worker calls `function` on `callee`.
  static CallProbe of_made(Observer* observer, std::string_view function, WorkerId callee) {
    return observer ? CallProbe(observer->metrics().made.at(function, callee)) : CallProbe();
  }
  /// This worker was asked by `caller` to run `function`, which is one of the program's: names that
  /// a peer could make up would be series without end.
  static CallProbe of_served(Observer* observer, std::string_view function, WorkerId caller) {
    return observer ? CallProbe(observer->metrics().served.at(function, caller)) : CallProbe();
  }

  /// Whether anybody looks; ask it before preparing what only a probe wants.
  explicit operator bool() const { return series_ != nullptr; }

  /// Twice is once, except that what had ended well may still turn out to have failed.
  void end(error_code const& error) noexcept {
    if (!series_) return;
    if (!std::exchange(has_ended_, true)) series_->duration.observe(Clock::now() - began_);
    if (error) std::exchange(series_, nullptr)->failures.add(error);
  }

 private:
  explicit CallProbe(CallSeries& series) : series_(&series), began_(Clock::now()) {
    series.begun.add();
  }

  CallSeries* series_ = nullptr;
  bool has_ended_ = false;
  Clock::time_point began_;
};

/// One worker's part in a backward pass. Ends once.
class PassProbe {
 public:
  PassProbe() = default;
  PassProbe(Observer* observer, PassId const& id, bool is_smart, bool is_initiator)
      : observer_(observer) {
    if (!observer_) return;
    began_ = Clock::now();
    record_.id = id;
    record_.is_smart = is_smart;
    record_.is_initiator = is_initiator;
    record_.began = std::chrono::system_clock::now();
    observer_->metrics().passes_of(record_).begun.add();
  }

  explicit operator bool() const { return observer_ != nullptr; }
  /// The record of a pass that goes on. @threads any; `sent`, `received`: gradient messages.
  PassRecord so_far(std::uint64_t sent, std::uint64_t received) const {
    auto record = record_;
    record.duration = Clock::now() - began_;
    record.gradients_sent = sent;
    record.gradients_received = received;
    return record;
  }
  void end(std::uint64_t sent, std::uint64_t received, error_code const& error) {
    if (!observer_) return;
    auto record = so_far(sent, received);
    record.error = error;
    auto& series = observer_->metrics().passes_of(record);
    series.duration.observe(record.duration);
    series.gradients_sent.add(sent);
    series.gradients_received.add(received);
    if (error) series.failures.add(error);
    observer_->metrics().pass_history.add(std::move(record));
  }

 private:
  Observer* observer_ = nullptr;
  Clock::time_point began_;
  PassRecord record_;
};

/// A task on its way through a compute queue.
class TaskProbe {
 public:
  explicit TaskProbe(Observer& observer) : observer_(&observer), since_(Clock::now()) {
    observer_->metrics().tasks_waiting.add(1);
  }
  TaskProbe(TaskProbe&& other) noexcept
      : observer_(std::exchange(other.observer_, nullptr)), since_(other.since_) {}
  TaskProbe& operator=(TaskProbe&&) = delete;
  ~TaskProbe() { leave_queue(); }

  void start() noexcept {
    observer_->metrics().task_wait.observe(Clock::now() - since_);
    leave_queue();
  }

 private:
  void leave_queue() noexcept {
    if (auto* observer = std::exchange(observer_, nullptr)) {
      observer->metrics().tasks_waiting.add(-1);
    }
  }

  Observer* observer_;
  Clock::time_point since_;
};

/// The same task, watched.
inline unique_function<void()> watch_task(Observer& observer, unique_function<void()> task) {
  return [probe = TaskProbe(observer), task = std::move(task)]() mutable {
    probe.start();
    task();
  };
}

}  // namespace distgrad
