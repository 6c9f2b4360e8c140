// One core for everything: where the kernel spreads the threads, a wake-up between cores can cost
// more than all the rest, and whether it does changes from second to second.
#pragma once

#include "timing.hpp"

#include <sched.h>

namespace bench {

/// Keeps the calling thread, and those it starts meanwhile, on one core.
class OneCore {
 public:
  explicit OneCore(bool wanted) {
    if (!wanted) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    if (::sched_getaffinity(0, sizeof all_, &all_) != 0 ||
        ::sched_setaffinity(0, sizeof one, &one) != 0)
      fail("cannot stay on one core");
    is_active_ = true;
  }
  ~OneCore() {
    if (is_active_) ::sched_setaffinity(0, sizeof all_, &all_);
  }
  OneCore(OneCore const&) = delete;
  OneCore& operator=(OneCore const&) = delete;

 private:
  cpu_set_t all_;
  bool is_active_ = false;
};

}  // namespace bench
