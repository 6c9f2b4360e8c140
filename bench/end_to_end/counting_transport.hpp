// A transport that counts what another one is given to send, by kind of frame.
#pragma once

#include <distgrad/transport/concept.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace bench {

/// Frames and bytes of one kind. Bytes are those of the wire: header, buffer lengths, metadata and
/// payload, also where the transport has no wire.
struct FrameCount {
  std::uint64_t frames = 0, bytes = 0;
};

/// What all workers of a cluster sent. @threads safe: shared object.
class FrameCounts {
 public:
  static constexpr std::size_t kinds = 0x100;
  using Snapshot = std::array<FrameCount, kinds>;

  void count(distgrad::Message const& message) {
    auto const header = message.header();
    auto& cell = cells_[static_cast<std::size_t>(header.kind) % kinds];
    cell.frames.fetch_add(1, std::memory_order_relaxed);
    cell.bytes.fetch_add(distgrad::frame_header_bytes +
                             header.buffer_count * sizeof(std::uint64_t) + header.metadata_bytes +
                             header.payload_bytes,
                         std::memory_order_relaxed);
  }

  Snapshot snapshot() const {
    Snapshot now;
    for (std::size_t i = 0; i < kinds; ++i)
      now[i] = {cells_[i].frames.load(std::memory_order_relaxed),
                cells_[i].bytes.load(std::memory_order_relaxed)};
    return now;
  }

 private:
  struct Cell {
    std::atomic<std::uint64_t> frames{0}, bytes{0};
  };
  std::array<Cell, kinds> cells_;
};

/// Hands everything on to `Inner`, unchanged.
template <distgrad::TransportPolicy Inner>
class CountingTransport {
 public:
  using contract = distgrad::transport_v1;
  struct Options : Inner::Options {
    std::shared_ptr<FrameCounts> counts = nullptr;  // none: nothing is counted
  };

  explicit CountingTransport(Options options = {})
      : counts_(std::move(options.counts)),
        inner_(static_cast<typename Inner::Options>(std::move(options))) {}

  std::string local_endpoint() const { return inner_.local_endpoint(); }
  void start(distgrad::TransportSetup setup) { inner_.start(std::move(setup)); }
  void async_send(distgrad::WorkerId to, distgrad::Message message, distgrad::SendCompletion done) {
    if (counts_) counts_->count(message);
    inner_.async_send(to, std::move(message), std::move(done));
  }
  std::size_t run_until(distgrad::time_point until) { return inner_.run_until(until); }
  void wake() noexcept { inner_.wake(); }
  void close() noexcept { inner_.close(); }

 private:
  std::shared_ptr<FrameCounts> counts_;
  Inner inner_;
};

}  // namespace bench
