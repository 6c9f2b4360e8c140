#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <distgrad/engine/local_cluster.hpp>

// Workers for the tests of whole engines.
namespace distgrad::testing {

/// Whether `condition` comes true in a generous time; asks again and again meanwhile.
template <class Condition>
bool becomes_true(Condition&& condition) {
  auto const deadline = Deadline::after(std::chrono::seconds(30));
  while (!condition()) {
    if (deadline.has_passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

/// The workers of a group, whatever their policies: tests that take it are compiled once.
using Workers = std::vector<Worker*>;

/// Whether nobody holds a call, a context, a pass or a remote value any more.
inline bool are_idle(Workers const& workers) {
  for (auto const* worker : workers) {
    auto const info = worker->debug_info();
    if (info.pending_calls + info.owned_rrefs + info.autograd_contexts + info.backward_passes) {
      return false;
    }
  }
  return true;
}

/// Four engines of a rig in one process. Those without a thread are driven by one each.
template <class Rig>
class EngineGroup {
 public:
  using Engine = typename Rig::Engine;
  static constexpr std::size_t size = 4;

  EngineGroup() : cluster_(quiet(Rig::options())) {
    for (auto& engine : cluster_) {
      workers_.push_back(engine.get());
      if constexpr (requires { engine->poll(); }) {
        drivers_.emplace_back([this, e = engine.get()] {
          while (!ending_) e->poll({.until = Clock::now() + milliseconds(10)});
        });
      }
    }
  }
  ~EngineGroup() {
    ending_ = true;
    for (auto& driver : drivers_) driver.join();
  }

  Workers const& workers() const { return workers_; }
  Engine& operator[](std::size_t rank) { return cluster_[rank]; }
  void shutdown() { cluster_.shutdown(); }

 private:
  static typename Engine::Options quiet(typename Engine::Options options) {
    options.log = {};  // errors are provoked on purpose
    return options;
  }

  LocalCluster<size, Engine> cluster_;
  Workers workers_;
  std::atomic<bool> ending_{false};
  std::vector<std::thread> drivers_;
};

}  // namespace distgrad::testing
