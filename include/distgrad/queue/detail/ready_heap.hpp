#pragma once
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include <distgrad/queue/concept.hpp>

namespace distgrad::detail {

// Tasks by priority, equal ones first in first out. One thread at a time.
class ReadyHeap {
 public:
  void push(ReadyTask task) {
    entries_.push_back({std::move(task), next_++});
    std::push_heap(entries_.begin(), entries_.end(), runs_later);
  }
  ReadyTask pop() {
    std::pop_heap(entries_.begin(), entries_.end(), runs_later);
    auto task = std::move(entries_.back().task);
    entries_.pop_back();
    return task;
  }
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    ReadyTask task;
    std::uint64_t order;
  };
  static bool runs_later(Entry const& a, Entry const& b) {
    return a.task.priority != b.task.priority ? a.task.priority < b.task.priority
                                              : a.order > b.order;
  }

  std::vector<Entry> entries_;
  std::uint64_t next_ = 0;
};

// Runs a task and destroys it. The contract says that it does not throw; if it does all the same,
// the exception ends here, because none may leave a thread.
inline void run_task(ReadyTask task) noexcept {
  try {
    task.run();
  } catch (...) {
    assert(!"a task of a queue threw");
  }
}

}  // namespace distgrad::detail
