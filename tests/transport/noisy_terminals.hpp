#pragma once
// Two pseudo-terminals whose masters a thread joins to one noisy line.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "noise.hpp"

namespace noise {

class Terminals {
 public:
  Terminals(unsigned seed, Rates rates) : seed_(seed) {
    for (int end : {0, 1}) {
      std::array<char, 64> name{};
      if (::openpty(&masters_[end], &ends_[end], name.data(), nullptr, nullptr) != 0) std::abort();
      names_[end] = name.data();
      ::fcntl(masters_[end], F_SETFL, O_NONBLOCK);
    }
    make(rates);
    relay_ = std::thread([this] { run(); });
  }
  ~Terminals() {
    ending_ = true;
    relay_.join();
    for (int end : {0, 1}) {
      ::close(masters_[end]);
      if (ends_[end] >= 0) ::close(ends_[end]);
    }
  }

  /// The caller owns it.
  int take_end(int end) { return std::exchange(ends_[end], -1); }
  std::string const& name(int end) const { return names_[end]; }
  /// From now on the line is like this.
  void make(Rates rates) {
    std::lock_guard lock(mutex_);
    lines_ = {Line(2 * seed_, rates), Line(2 * seed_ + 1, rates)};
  }

 private:
  void run() {
    while (!ending_) {
      std::array<pollfd, 2> inputs{pollfd{masters_[0], POLLIN, 0}, pollfd{masters_[1], POLLIN, 0}};
      ::poll(inputs.data(), 2, 10);
      for (int from : {0, 1}) {
        if (inputs[from].revents & POLLIN) carry(from);
      }
    }
  }
  void carry(int from) {
    std::array<std::byte, 512> bytes;
    auto const got = ::read(masters_[from], bytes.data(), bytes.size());
    if (got <= 0) return;
    std::unique_lock lock(mutex_);
    auto const out = lines_[from].pass(std::span(bytes).first(std::size_t(got)));
    lock.unlock();
    for (std::size_t at = 0; at < out.size() && !ending_;) {
      auto const written = ::write(masters_[1 - from], out.data() + at, out.size() - at);
      if (written > 0) at += std::size_t(written);
      pollfd room{masters_[1 - from], POLLOUT, 0};
      if (written <= 0) ::poll(&room, 1, 10);
    }
  }

  unsigned seed_;
  std::array<int, 2> masters_{}, ends_{};
  std::array<std::string, 2> names_;
  std::mutex mutex_;
  std::array<Line, 2> lines_{Line(0, {}), Line(0, {})};
  std::atomic<bool> ending_{false};
  std::thread relay_;
};

}  // namespace noise
