#pragma once
// What flow tests share: clusters over every shipped transport, and waiting without sleeping.

#include <chrono>
#include <thread>

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

template <std::size_t N, class Engine>
struct Cluster : distgrad::LocalCluster<N, Engine> {
  explicit Cluster(typename Engine::Options o = options<Engine>())
      : distgrad::LocalCluster<N, Engine>(std::move(o)) {}
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
