#pragma once
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/transport/concept.hpp>
#include <distgrad/transport/detail/loopback_inbox.hpp>

namespace distgrad {

/// Where the loopback transports of one cluster find each other. @threads safe: shared object.
class LoopbackHub {
 public:
  /// Adds an inbox. @return its number in this hub, from 1.
  std::uint64_t add(std::shared_ptr<detail::LoopbackInbox> inbox);
  /// Null when no such transport exists any more.
  std::shared_ptr<detail::LoopbackInbox> find(std::string const& endpoint);

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::weak_ptr<detail::LoopbackInbox>> inboxes_;
  std::uint64_t last_ = 0;
};

/// Messages between workers of one process, through memory. The receiver's sink gets copies of
/// payloads, never the sender's memory. Without a thread of its own; with `run_until(
/// time_point::min())` everything happens in a reproducible order.
///
/// Completions of messages without buffers are called inside `async_send`; with buffers, on the
/// sender's `run_until` thread after the receiver has copied them.
class LoopbackTransport {
 public:
  using contract = transport_v1;
  struct Options {
    /// Shared by the transports of a cluster. Null: a hub of its own, for a group of one.
    std::shared_ptr<LoopbackHub> hub;
  };

  explicit LoopbackTransport(Options options = {});
  LoopbackTransport(LoopbackTransport const&) = delete;
  LoopbackTransport& operator=(LoopbackTransport const&) = delete;
  /// Closes. No thread may be inside `run_until`.
  ~LoopbackTransport();

  /// "loopback:<n>". @threads any.
  std::string local_endpoint() const { return endpoint_; }
  /// @throws Error invalid_argument when `setup.self` is not in the group or the sink is null.
  void start(TransportSetup setup);
  /// @threads any.
  void async_send(WorkerId to, Message message, SendCompletion done);
  /// Delivers what is there, waiting for it until `until`; `time_point::min()` does not wait.
  /// @return items handled, at most `limit`. @threads one at a time, after `start`.
  std::size_t run_until(time_point until,
                        std::size_t limit = std::numeric_limits<std::size_t>::max());
  /// One descriptor, readable when something is there.
  /// @throws Error when there are no more descriptors. @threads as `run_until`.
  std::vector<pollfd> native_handles();
  std::chrono::nanoseconds longest_sleep() const { return std::chrono::nanoseconds::max(); }
  /// Makes the running or else the next `run_until` return. @threads any.
  void wake() noexcept;
  /// Says goodbye to all peers. Messages handed over before still arrive. @threads any.
  void close() noexcept;
  /// Ends like a killed process, without goodbye: peers see a loss. For tests. @threads any.
  void abandon() noexcept;

 private:
  using Inbox = detail::LoopbackInbox;
  using Item = detail::LoopbackItem;

  error_code hand_over(WorkerId to, Message message, std::uint64_t token);
  void handle(Item& item);
  void deliver(Item& item);
  std::uint64_t remember(SendCompletion done);
  SendCompletion forget(std::uint64_t token);
  void complete(std::uint64_t token, error_code result);
  void end(Item::What farewell, error_code why) noexcept;

  std::shared_ptr<LoopbackHub> hub_;
  std::shared_ptr<Inbox> inbox_;
  std::string endpoint_;
  TransportSetup setup_;
  std::vector<std::shared_ptr<Inbox>> peers_;
  std::atomic<bool> started_{false}, closed_{false};

  std::mutex mutex_;  // guards the two below
  std::unordered_map<std::uint64_t, SendCompletion> waiting_;
  std::uint64_t last_token_ = 0;
};

static_assert(BoundedTransport<LoopbackTransport> && WaitableTransport<LoopbackTransport>);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/loopback_transport.ipp>
#endif
