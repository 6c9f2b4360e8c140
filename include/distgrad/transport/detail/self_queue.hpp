#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include <distgrad/transport/detail/io_loop.hpp>
#include <distgrad/transport/detail/landing.hpp>

namespace distgrad::detail {

/// Messages of a worker to itself: delivered on the I/O thread, payloads copied as if they had
/// travelled. @threads `send` and `close` any, `drain` the I/O thread.
class SelfQueue {
 public:
  explicit SelfQueue(IoLoop& loop) : loop_(loop) {}

  void send(Message message, SendCompletion done) {
    bool first = false;
    bool closed = false;
    {
      std::lock_guard lock(mutex_);
      closed = closed_;
      if (!closed) {
        first = queue_.empty();
        queue_.emplace_back(std::move(message), std::move(done));
      }
    }
    if (closed && done) done(errc::closed);
    if (first) loop_.post([this] { drain(); });
  }

  void close() {
    std::deque<Entry> rest;
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      rest.swap(queue_);
    }
    for (auto& entry : rest) finish(entry, errc::closed);
  }

 private:
  using Entry = std::pair<Message, SendCompletion>;

  void drain() {
    bool is_more = false;
    for (auto& entry : take(loop_.messages_left, is_more)) {
      if (loop_.closing) {
        finish(entry, errc::closed);
      } else {
        deliver(entry);
      }
    }
    if (is_more) loop_.post([this] { drain(); });
  }

  std::deque<Entry> take(std::size_t limit, bool& is_more) {
    std::lock_guard lock(mutex_);
    std::deque<Entry> some;
    if (queue_.size() <= limit) {
      some.swap(queue_);
      return some;
    }
    is_more = true;
    for (std::size_t i = 0; i < limit; ++i) {
      some.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    return some;
  }

  void deliver(Entry& entry) {
    --loop_.messages_left;
    auto& sink = *loop_.setup.sink;
    auto& message = entry.first;
    bool accepted = true;
    if (!message.buffers.empty()) {
      auto const lengths = buffer_lengths(message.buffers);
      auto landing = sink.landing(message.header(), message.metadata, lengths);
      accepted = fit_landing(landing, lengths);
      if (accepted) copy_buffers(message.buffers, landing);
      message.buffers = std::move(landing);
    }
    finish(entry, {});
    if (accepted) sink.on_message(loop_.setup.self, std::move(message));
  }

  static void finish(Entry& entry, error_code result) {
    if (entry.second) entry.second(result);
  }

  IoLoop& loop_;
  std::mutex mutex_;
  std::deque<Entry> queue_;
  bool closed_ = false;
};

}  // namespace distgrad::detail
