#pragma once
// A transport that counts what passes through it, and may send messages twice.

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include <distgrad/transport/concept.hpp>

namespace rig {

/// What all workers of a cluster share.
class Meddling {
 public:
  /// Messages of a kind that were sent so far, by all workers.
  std::uint64_t count(distgrad::FrameKind kind) const { return counts_[std::size_t(kind)]; }
  /// Control and gradient messages of passes.
  std::uint64_t count_passes() const {
    std::uint64_t sum = 0;
    for (std::size_t kind = 0x40; kind < 0x50; ++kind) sum += counts_[kind];
    return sum;
  }
  void forget() {
    for (auto& count : counts_) count = 0;
  }
  /// Every message of a pass is sent twice from now on.
  std::atomic<bool> doubles_passes{false};

  /// @return how often to send the message.
  int sees(distgrad::FrameKind kind) {
    auto const number = std::size_t(kind);
    ++counts_[number];
    return doubles_passes && number >= 0x40 && number < 0x50 ? 2 : 1;
  }

 private:
  std::array<std::atomic<std::uint64_t>, 0x100> counts_{};
};

template <distgrad::TransportPolicy Inner>
class MeddlingTransport {
 public:
  using contract = distgrad::transport_v1;
  struct Options : Inner::Options {
    std::shared_ptr<Meddling> meddling = std::make_shared<Meddling>();
  };

  explicit MeddlingTransport(Options options = {})
      : meddling_(std::move(options.meddling)),
        inner_(static_cast<typename Inner::Options>(std::move(options))) {}

  std::string local_endpoint() const { return inner_.local_endpoint(); }
  void start(distgrad::TransportSetup setup) { inner_.start(std::move(setup)); }
  void async_send(distgrad::WorkerId to, distgrad::Message message, distgrad::SendCompletion done) {
    if (meddling_->sees(message.kind) == 2) inner_.async_send(to, message, nullptr);
    inner_.async_send(to, std::move(message), std::move(done));
  }
  std::size_t run_until(distgrad::time_point until) { return inner_.run_until(until); }
  void wake() noexcept { inner_.wake(); }
  void close() noexcept { inner_.close(); }

 private:
  std::shared_ptr<Meddling> meddling_;
  Inner inner_;
};

}  // namespace rig
