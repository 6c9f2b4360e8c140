#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include <boost/asio/post.hpp>

#include <distgrad/transport/detail/landing.hpp>
#include <distgrad/transport/detail/tcp_shared.hpp>

namespace distgrad::detail {

/// Messages of a worker to itself: delivered on the I/O thread, payloads copied as if they had
/// travelled. @threads `send` and `close` any, `drain` the I/O thread.
class SelfQueue {
 public:
  explicit SelfQueue(TcpShared& shared) : shared_(shared) {}

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
    if (first) boost::asio::post(shared_.io, [this] { drain(); });
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
    std::deque<Entry> all;
    {
      std::lock_guard lock(mutex_);
      all.swap(queue_);
    }
    for (auto& entry : all) {
      if (shared_.closing) {
        finish(entry, errc::closed);
      } else {
        deliver(entry);
      }
    }
  }

  void deliver(Entry& entry) {
    auto& sink = *shared_.setup.sink;
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
    if (accepted) sink.on_message(shared_.setup.self, std::move(message));
  }

  static void finish(Entry& entry, error_code result) {
    if (entry.second) entry.second(result);
  }

  TcpShared& shared_;
  std::mutex mutex_;
  std::deque<Entry> queue_;
  bool closed_ = false;
};

}  // namespace distgrad::detail
