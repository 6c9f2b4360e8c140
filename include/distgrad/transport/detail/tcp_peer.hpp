#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include <boost/asio/ip/tcp.hpp>

#include <distgrad/config.hpp>
#include <distgrad/transport/detail/frame_assembler.hpp>
#include <distgrad/transport/detail/outgoing_frame.hpp>
#include <distgrad/transport/detail/tcp_shared.hpp>

namespace distgrad::detail {

/// One other worker: the connection to it, and what waits to be written.
///
///   state       | a message to send                     | leaves by
///   ------------+---------------------------------------+---------------------------------
///   connecting  | is queued                             | attach -> open; end -> ended
///   open        | is written at once if nothing waits,  | goodbye, loss or close -> ended
///               | else queued for the I/O thread        |
///   ended       | completes with the reason             |
///
/// Writing: whoever holds the mutex, with non-blocking calls, so that order holds between direct
/// and queued writes. Reading and everything Asio: the I/O thread.
class TcpPeer : public std::enable_shared_from_this<TcpPeer>, private AssemblerSink {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  TcpPeer(TcpShared& shared, WorkerId id);

  /// @threads any.
  void send(OutgoingFrame frame);
  /// Takes the connection, writes what waits, and begins to read. Closes `socket` when the peer
  /// has one already or has ended. @threads the I/O thread.
  void attach(Socket socket);
  /// Gives up: completes what waits with `why` and reports the loss. @threads the I/O thread.
  void lose(error_code why);
  bool is_connecting();
  /// Adds the connection, if there is one, to what a loop outside waits on. @threads any.
  void add_handle(std::vector<pollfd>& handles);

  /// Closing, step 1: puts a goodbye behind what waits. @threads any.
  void say_goodbye();
  /// Closing, step 2: writes without blocking. @return whether all of it has arrived in the
  /// peer's kernel, or never will. @threads any.
  bool flush();
  /// Closing, step 3: nothing is written any more; completes what waits with `closed`.
  /// @threads any.
  void stop_writing();
  /// Closing, step 4. @threads when nobody is in the I/O thread's loop.
  void close_socket();

 private:
  enum class State { connecting, open, ended };
  using Frames = std::vector<OutgoingFrame>;

  std::vector<Buffer> landing(FrameHeader const& header, std::span<std::byte const> metadata,
                              std::span<std::uint64_t const> lengths) noexcept override;
  bool on_frame(Message message) noexcept override;
  bool must_pause() noexcept override { return shared_.messages_left == 0; }

  // With mutex_ held:
  void write_directly(OutgoingFrame& frame);
  void write_queue(Frames& finished);
  std::ptrdiff_t write(std::span<iovec> pieces);
  bool must_arm();

  void arm_write();
  void on_writable();
  void read();
  void on_read(error_code ec, std::size_t count);
  bool take(std::size_t count);
  void go_on();
  bool read_more();

  TcpShared& shared_;
  WorkerId const id_;

  std::mutex mutex_;  // guards the next five
  State state_ = State::connecting;
  error_code why_;  // it ended
  std::deque<OutgoingFrame> queue_;
  bool write_armed_ = false;
  int descriptor_ = -1;

  // The I/O thread's:
  std::optional<Socket> socket_;
  FrameAssembler assembler_;
  std::size_t asked_bytes_ = 0;  // by the read in progress
  error_code failure_;           // found while taking a frame
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/tcp_peer.ipp>
#endif
