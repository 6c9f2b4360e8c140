#pragma once
#include <atomic>
#include <chrono>
#include <thread>

#include <distgrad/core/deadline.hpp>

namespace rig {

/// Drives an engine without threads on a thread of its own.
template <class Engine>
class Driver {
 public:
  explicit Driver(Engine& engine)
      : thread_([this, &engine] {
          while (!ending_) {
            engine.poll({.until = distgrad::Clock::now() + std::chrono::milliseconds(10)});
          }
        }) {}
  ~Driver() {
    ending_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace rig
