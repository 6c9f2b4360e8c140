#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include <distgrad/transport/concept.hpp>
#include <distgrad/transport/detail/bell.hpp>

namespace distgrad::detail {

class LoopbackInbox;

/// What lies in an inbox.
struct LoopbackItem {
  enum class What {
    message,  ///< a message from a peer
    taken,    ///< the payload of message `token` was copied: its completion may be called
    left,     ///< the peer said goodbye
    lost      ///< the peer vanished
  };
  What what{};
  WorkerId from;
  Message message;
  /// Who wants to know that the payload was copied, and under which number; null if nobody.
  std::shared_ptr<LoopbackInbox> sender;
  std::uint64_t token = 0;
  error_code result;
};

/// Where messages for one transport wait for the thread in its `run_until`. Outlives the
/// transport: peers share it. @threads safe; `wait` and the `taken` functions by one thread.
class LoopbackInbox {
 public:
  /// @return why the item was not taken, if so.
  error_code push(LoopbackItem item);
  /// Waits for items, a wake or the end. @return how many items there are.
  std::size_t wait(time_point until);
  /// The next item, valid until the next call; null when there is none or the inbox was shut.
  LoopbackItem* take();
  std::vector<std::uint64_t> lengths_of_taken();
  /// Copies the payload of the taken item to `landing`, or drops it when that is null.
  /// @return who wants to know, null if nobody.
  std::shared_ptr<LoopbackInbox> empty_taken(std::vector<Buffer> const* landing);
  void wake() noexcept;
  /// Readable when `wait` would not wait.
  int descriptor() { return bell_.descriptor(); }
  /// `wait` has silenced the descriptor, but not all was taken.
  void ring() noexcept { bell_.ring(); }
  /// Refuses further items with `why`. @return what was not taken yet.
  std::deque<LoopbackItem> shut(error_code why);
  /// Gives messages of `sender` that are still here a payload of their own.
  void detach(LoopbackInbox const* sender);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Bell bell_;
  std::deque<LoopbackItem> items_;
  error_code shut_;
  bool woken_ = false;

  // Order: mutex_ before copying_. The copy of a payload does not hold up senders.
  std::mutex copying_;
  LoopbackItem taken_;
};

}  // namespace distgrad::detail
