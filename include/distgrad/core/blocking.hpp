#pragma once
#include <utility>

namespace distgrad {

/// What a thread pool is told when one of its threads starts and stops waiting, so that it can
/// put another thread to work meanwhile.
class BlockingObserver {
 public:
  virtual ~BlockingObserver() = default;
  /// The calling thread is about to wait.
  /// @throws Error `errc::pool_exhausted` when nobody could work meanwhile; then it must not wait.
  virtual void blocked() = 0;
  /// The calling thread waits no longer.
  virtual void unblocked() noexcept = 0;
};

namespace detail {
inline BlockingObserver*& blocking_observer() noexcept {
  thread_local BlockingObserver* observer = nullptr;
  return observer;
}
}  // namespace detail

/// Makes `observer` the calling thread's one for a scope; null for none.
class BlockingObserverScope {
 public:
  explicit BlockingObserverScope(BlockingObserver* observer) noexcept
      : previous_(std::exchange(detail::blocking_observer(), observer)) {}
  ~BlockingObserverScope() { detail::blocking_observer() = previous_; }
  BlockingObserverScope(BlockingObserverScope const&) = delete;
  BlockingObserverScope& operator=(BlockingObserverScope const&) = delete;

 private:
  BlockingObserver* previous_;
};

/// Around every wait of the library. On a thread without an observer, and inside another region,
/// it does nothing.
/// @throws Error `errc::pool_exhausted` from the constructor.
class BlockingRegion {
 public:
  // The observer is taken off the thread for the time of the region: whatever waits inside belongs
  // to the same wait.
  BlockingRegion() : observer_(std::exchange(detail::blocking_observer(), nullptr)) {
    if (observer_) enter();
  }
  ~BlockingRegion() {
    if (!observer_) return;
    observer_->unblocked();
    detail::blocking_observer() = observer_;
  }
  BlockingRegion(BlockingRegion const&) = delete;
  BlockingRegion& operator=(BlockingRegion const&) = delete;

 private:
  void enter() {
    try {
      observer_->blocked();
    } catch (...) {
      detail::blocking_observer() = observer_;
      throw;
    }
  }

  BlockingObserver* observer_;
};

}  // namespace distgrad
