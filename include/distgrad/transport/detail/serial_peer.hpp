#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <distgrad/config.hpp>
#include <distgrad/transport/detail/frame_assembler.hpp>
#include <distgrad/transport/detail/io_loop.hpp>
#include <distgrad/transport/detail/outgoing_frame.hpp>
#include <distgrad/transport/detail/serial_link.hpp>

namespace distgrad::detail {

/// One other worker and the line to it: moves bytes between the descriptors and a `SerialLink`.
/// Everything Asio, the assembler and the sink belong to the I/O thread; the link and the
/// descriptors to whoever holds the mutex, so that another thread can close.
class SerialPeer : public std::enable_shared_from_this<SerialPeer>, private AssemblerSink {
 public:
  /// Takes the descriptors over; they may be the same.
  SerialPeer(IoLoop& loop, WorkerId id, int input, int output);
  ~SerialPeer();

  /// Begins to talk. @threads before the others.
  void start(SerialLinkOptions const& options, SerialLink::Ends ends);
  /// @threads any.
  void send(OutgoingFrame frame);
  /// @threads any.
  SerialStatistics statistics() const;
  /// Adds what a loop outside waits on. @threads the I/O thread.
  void add_handles(std::vector<pollfd>& handles) const;
  /// When the timer rings, `time_point::max()` if it does not. @threads the I/O thread.
  time_point next_deadline() const { return timer_at_; }

  /// Closing, step 1: puts a goodbye behind what waits. @threads any.
  void say_goodbye();
  /// Closing, step 2: reads acknowledgements and writes, without waiting. @return whether the peer
  /// has all of it, or never will. @threads any.
  bool flush();
  /// Closing, step 3: completes what is left with `closed`. @threads any.
  void stop();
  /// Closing, step 4. @threads when nobody is in the I/O thread's loop.
  void close_descriptors() noexcept;
  /// What `poll` should wait for between two calls of `flush`.
  int input() const { return input_; }

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  using Frames = std::vector<OutgoingFrame>;

  std::vector<Buffer> landing(FrameHeader const& header, std::span<std::byte const> metadata,
                              std::span<std::uint64_t const> lengths) noexcept override;
  bool on_frame(Message message) noexcept override;
  bool must_pause() noexcept override { return loop_.messages_left == 0; }

  // With mutex_ held:
  bool read_line(std::vector<std::byte>& stream);
  void write_line();

  void await_input();
  void on_input();
  void await_output();
  void await_deadline();
  void pump();
  void settle(error_code lost = {});
  void deliver();
  void commit(std::size_t size);
  void go_on();

  IoLoop& loop_;
  WorkerId const id_;
  int const input_, output_;

  mutable std::mutex mutex_;  // guards the next six
  std::optional<SerialLink> link_;
  std::vector<std::byte> unwritten_;
  std::size_t written_ = 0;  // bytes of unwritten_ that are out
  bool is_pump_posted_ = false;
  bool is_output_blocked_ = false;
  bool is_stopped_ = false;

  // The I/O thread's:
  Descriptor reader_, writer_;
  boost::asio::steady_timer timer_;
  time_point timer_at_ = time_point::max();
  std::optional<FrameAssembler> assembler_;
  std::vector<std::byte> stream_;  // came in order; the first delivered_ bytes are done
  std::size_t delivered_ = 0;
  bool has_line_ended_ = false;
  error_code failure_;  // found while delivering
  bool is_loss_reported_ = false;
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/serial_peer.ipp>
#endif
