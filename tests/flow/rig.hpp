#pragma once
// What flow tests share: clusters over every shipped transport, and waiting without sleeping.

#include <chrono>
#include <thread>
#include <utility>

#include <distgrad/distgrad.hpp>

#include <doctest/doctest.h>

namespace rig {

using distgrad::LoopbackEngine;
using distgrad::TcpEngine;

// Every behaviour of several workers is tested over memory and over sockets:
//   TEST_CASE_TEMPLATE("[DA-27] backward leaves .grad untouched", Engine, DISTGRAD_ENGINES) {
//     rig::Cluster<2, Engine> cluster;
#define DISTGRAD_ENGINES rig::LoopbackEngine, rig::TcpEngine

template <class Engine>
typename Engine::Options options() {
  typename Engine::Options options;
  options.rendezvous_timeout = std::chrono::seconds(60);
  options.log = {};  // tests provoke errors on purpose
  if constexpr (requires { options.transport.bind_address; }) {
    options.transport.bind_address = "127.0.0.1";
  }
  return options;
}

/// Where tests make their tensors: in the host's memory, or on a device (simulated.hpp).
inline c10::Device& home() {
  static c10::Device device = c10::kCPU;
  return device;
}
inline at::Tensor at_home(at::Tensor const& values) { return values.to(home()); }

/// While it lives, home is the host.
class OnHost {
 public:
  OnHost() : before_(std::exchange(home(), c10::kCPU)) {}
  ~OnHost() { home() = before_; }
  OnHost(OnHost const&) = delete;
  OnHost& operator=(OnHost const&) = delete;

 private:
  c10::Device before_;
};

/// What an engine's tensors need as long as its workers live.
template <class Engine>
struct Home {
  template <std::size_t N, class Options>
  static void prepare(Options&) {}
};

template <std::size_t N, class Engine>
struct Cluster : private Home<Engine>, distgrad::LocalCluster<N, Engine> {
  explicit Cluster(typename Engine::Options o = options<Engine>())
      : distgrad::LocalCluster<N, Engine>(prepared(std::move(o))) {}

 private:
  static auto prepared(typename Engine::Options o) {
    Home<Engine>::template prepare<N>(o);
    return o;
  }
};

/// Whether `condition` comes true within a generous bound; asks again and again meanwhile.
template <class Condition>
bool eventually(Condition&& condition, std::chrono::seconds bound = std::chrono::seconds(30)) {
  auto const end = std::chrono::steady_clock::now() + bound;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// The code of the error `f` throws; success if it throws none.
template <class F>
distgrad::error_code error_of(F&& f) {
  try {
    f();
  } catch (distgrad::Error const& error) {
    return error.code();
  }
  return {};
}

/// The text of the error `f` throws; empty if it throws none.
template <class F>
std::string text_of(F&& f) {
  try {
    f();
  } catch (std::exception const& error) {
    return error.what();
  }
  return {};
}

}  // namespace rig
