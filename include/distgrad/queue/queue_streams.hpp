#pragma once
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <distgrad/queue/concept.hpp>
#include <distgrad/queue/stream_order.hpp>

namespace distgrad {

/// The streams of one queue policy, its events erased.
template <QueuePolicy Queues>
class QueueStreams final : public StreamOrder {
 public:
  /// @param queues outlives this and every mark.
  explicit QueueStreams(Queues& queues) : queues_(queues) {}

  std::span<c10::Stream const> streams() const override { return queues_.streams(); }
  void order(c10::Stream before, c10::Stream after) override {
    auto event = queues_.record(before);
    queues_.wait(after, event);
  }
  void keep(c10::DataPtr const& memory, c10::Stream stream) override {
    queues_.keep(memory, stream);
  }
  std::shared_ptr<DeviceMark> mark() override { return std::make_shared<Mark>(queues_); }

 private:
  class Mark final : public DeviceMark {
   public:
    explicit Mark(Queues& queues) : queues_(queues) {
      for (auto const& own : queues.streams()) {
        auto const now = current_stream(own.device());
        events_.emplace_back(now, queues.record(now));
      }
    }
    void follow() override {
      std::lock_guard const lock(mutex_);  // an event is waited for by one thread at a time
      for (auto& [before, event] : events_) {
        auto const now = current_stream(before.device());
        if (now != before) queues_.wait(now, event);
      }
    }

   private:
    Queues& queues_;
    std::mutex mutex_;
    std::vector<std::pair<c10::Stream, typename Queues::Event>> events_;
  };

  Queues& queues_;
};

}  // namespace distgrad
