#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <distgrad/core/deadline.hpp>
#include <distgrad/core/error.hpp>
#include <distgrad/core/peer_address.hpp>
#include <distgrad/core/unique_function.hpp>
#include <distgrad/observe/metrics.hpp>
#include <distgrad/observe/trace.hpp>

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
  /// @param trace_events for how many a trace has room; none without.
  Observer(WorkerId self, std::vector<PeerAddress> group, std::size_t trace_events = 0)
      : self_(self), group_(std::move(group)), metrics_(group_.size()) {
    if (trace_events != 0) trace_.emplace(trace_events);
  }

  WorkerInfo const& self() const { return group_[self_.value].info; }
  /// The group, with the endpoints by which transports reach one another.
  std::vector<PeerAddress> const& group() const { return group_; }
  std::chrono::steady_clock::time_point since() const { return since_; }
  /// The same moment on the wall clock.
  std::chrono::system_clock::time_point since_on_wall() const { return since_on_wall_; }

  Metrics& metrics() { return metrics_; }
  Metrics const& metrics() const { return metrics_; }
  /// Null if this engine is not traced.
  Trace* trace() { return trace_ ? &*trace_ : nullptr; }
  Trace const* trace() const { return trace_ ? &*trace_ : nullptr; }

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
  std::chrono::system_clock::time_point since_on_wall_ = std::chrono::system_clock::now();
  Metrics metrics_;
  std::optional<Trace> trace_;
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
        began_(other.began_),
        traced_(std::move(other.traced_)) {}
  CallProbe& operator=(CallProbe&&) = delete;
  ~CallProbe() {
    if (!has_ended_) end(errc::cancelled);
  }

  /// This worker calls `function` on `callee`.
  static CallProbe of_made(Observer* observer, std::string_view function, WorkerId callee) {
    if (!observer) return {};
    return CallProbe(*observer, observer->metrics().made.at(function, callee),
                     CallSpan::Side::caller);
  }
  /// This worker was asked by `caller` to run `function`, which is one of the program's: names that
  /// a peer could make up would be series without end. @param call the caller's number of it.
  static CallProbe of_served(Observer* observer, std::string_view function, WorkerId caller,
                             CallId call) {
    if (!observer) return {};
    CallProbe probe(*observer, observer->metrics().served.at(function, caller),
                    CallSpan::Side::callee);
    if (probe.traced_) probe.traced_->span.call = call;
    return probe;
  }

  /// Whether anybody looks; ask it before preparing what only a probe wants.
  explicit operator bool() const { return series_ != nullptr; }

  /// Where to write the caller's number of the call, before the call can end; null if nobody wants
  /// to know.
  CallId* id_place() { return traced_ ? &traced_->span.call : nullptr; }
  /// Of the call's message, and of the message that answers it.
  void sent(std::uint64_t bytes) noexcept {
    if (traced_) traced_->span.sent_bytes = bytes;
  }
  void received(std::uint64_t bytes) noexcept {
    if (traced_) traced_->span.received_bytes = bytes;
  }
  /// The answer says only that the call arrived, and does not wait for the callee.
  void is_only_acknowledged() noexcept {
    if (traced_) traced_->span.awaits_result = false;
  }

  /// At the callee: it no longer waits for a thread, but runs on the calling one.
  void start() noexcept {
    if (!traced_) return;
    traced_->span.began = Clock::now();
    traced_->span.thread = std::this_thread::get_id();
  }
  /// Twice is once, except that what had ended well may still turn out to have failed.
  void end(error_code const& error) noexcept {
    if (!series_) return;
    if (!std::exchange(has_ended_, true)) {
      auto const now = Clock::now();
      series_->duration.observe(now - began_);
      if (traced_) trace_end(now, error);
    }
    if (error) std::exchange(series_, nullptr)->failures.add(error);
  }

 private:
  struct Traced {
    Trace& trace;
    CallSpan span;
  };

  CallProbe(Observer& observer, CallSeries& series, CallSpan::Side side)
      : series_(&series), began_(Clock::now()) {
    series.begun.add();
    if (auto* trace = observer.trace()) {
      traced_ = std::unique_ptr<Traced>(new Traced{*trace,
                                                   {.side = side,
                                                    .function = series.function,
                                                    .peer = series.peer,
                                                    .arrived = began_,
                                                    .began = began_,
                                                    .thread = std::this_thread::get_id()}});
    }
  }
  void trace_end(time_point now, error_code const& error) noexcept {
    traced_->span.ended = now;
    traced_->span.error = error;
    traced_->trace.add(traced_->span);
  }

  CallSeries* series_ = nullptr;
  bool has_ended_ = false;
  Clock::time_point began_;
  std::unique_ptr<Traced> traced_;  // apart: without a trace a probe is small
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
    thread_ = std::this_thread::get_id();
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
  /// A gradient message goes to a peer, or came from it.
  void gradient_sent(WorkerId to, AutogradMessageId message, std::uint64_t bytes) const noexcept {
    mark({record_.id, message, to, true, bytes, {}});
  }
  void gradient_received(WorkerId from, AutogradMessageId message) const noexcept {
    mark({record_.id, message, from, false, 0, {}});
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
    if (auto* trace = observer_->trace()) {
      trace->add(PassSpan{record, began_, began_ + record.duration, thread_});
    }
    observer_->metrics().pass_history.add(std::move(record));
  }

 private:
  void mark(GradientMark gradient) const noexcept {
    auto* const trace = observer_ ? observer_->trace() : nullptr;
    if (!trace) return;
    gradient.at = Clock::now();
    trace->add(gradient);
  }

  Observer* observer_ = nullptr;
  Clock::time_point began_;
  std::thread::id thread_;
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
