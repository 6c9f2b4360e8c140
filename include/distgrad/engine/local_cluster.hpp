#pragma once
#include <array>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <distgrad/engine/engines.hpp>
#include <distgrad/rendezvous/local_rendezvous.hpp>

namespace distgrad {

/// `N` workers in one process, named worker0, worker1 and so on: for examples, tests, and programs
/// that want the model of a cluster without one.
/// @tparam Engine any `DistEngine`; workers of a loopback engine find each other by themselves.
template <std::size_t N, class Engine = LoopbackEngine>
class LocalCluster {
 public:
  /// @param options as for one worker; name, rank, world size and rendezvous are filled in.
  explicit LocalCluster(typename Engine::Options options = {}) {
    if constexpr (requires { options.transport.hub; }) {
      if (!options.transport.hub) options.transport.hub = std::make_shared<LoopbackHub>();
    }
    options.world_size = int(N);
    options.rendezvous = LocalRendezvous();
    std::array<std::exception_ptr, N> errors;
    std::vector<std::thread> starters;  // each constructor waits for all others
    for (std::size_t i = 0; i < N; ++i) {
      starters.emplace_back([this, i, &errors, options]() mutable {
        try {
          options.rank = int(i);
          options.name = "worker" + std::to_string(i);
          engines_[i] = std::make_unique<Engine>(std::move(options));
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
    for (auto& starter : starters) starter.join();
    for (auto const& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  static constexpr std::size_t size() { return N; }
  Engine& operator[](std::size_t rank) { return *engines_[rank]; }
  auto begin() { return engines_.begin(); }
  auto end() { return engines_.end(); }

  /// Ends all workers together. @throws as `DistEngine::shutdown`.
  void shutdown(std::chrono::nanoseconds timeout = std::chrono::minutes(5)) {
    std::array<std::exception_ptr, N> errors;
    std::vector<std::thread> enders;
    for (std::size_t i = 0; i < N; ++i) {
      enders.emplace_back([this, i, timeout, &errors] {
        try {
          engines_[i]->shutdown(timeout);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
    for (auto& ender : enders) ender.join();
    for (auto const& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

 private:
  std::array<std::unique_ptr<Engine>, N> engines_;
};

}  // namespace distgrad
