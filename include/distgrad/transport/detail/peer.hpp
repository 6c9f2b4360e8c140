#pragma once
#include <poll.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/transport/detail/frame_assembler.hpp>
#include <distgrad/transport/detail/handshake_channel.hpp>
#include <distgrad/transport/detail/io_loop.hpp>
#include <distgrad/transport/detail/outgoing_frame.hpp>

namespace distgrad::detail {

/// One other worker: what waits to be written to it, and what the bytes from it mean.
///
///   state       | a message to send                     | leaves by
///   ------------+---------------------------------------+---------------------------------
///   connecting  | is queued                             | attach -> open; end -> ended
///   open        | is written at once if nothing waits,  | goodbye, loss or close -> ended
///               | else queued for the I/O thread        |
///   ended       | completes with the reason             |
///
/// Subclasses say how bytes travel, and may leave the writing at once to the I/O thread.
class Peer : public std::enable_shared_from_this<Peer>, private AssemblerSink {
 public:
  Peer(IoLoop& loop, WorkerId id);

  /// @threads any.
  void send(OutgoingFrame frame);
  /// Takes the connection of a channel whose exchange is over, writes what waits, and begins to
  /// read. Closes it when the peer has one already or has ended. @threads the I/O thread.
  virtual void attach(HandshakeChannel& channel) = 0;
  /// Gives up: completes what waits with `why` and reports the loss. @threads the I/O thread.
  void lose(error_code why);
  bool is_connecting();
  /// Adds the connection, if there is one, to what a loop outside waits on. @threads any.
  void add_handle(std::vector<pollfd>& handles);

  /// Closing, step 1: puts a goodbye behind what waits. @threads any.
  void say_goodbye();
  /// Closing, step 2: goes on writing, without blocking. @return whether all of it has arrived in
  /// the peer's kernel, or never will. @threads any.
  virtual bool flush() = 0;
  /// Closing, step 3: nothing is written any more; completes what waits with `closed`.
  /// @threads any.
  void stop_writing();
  /// Closing, step 4. @threads when nobody is in the I/O thread's loop.
  virtual void close_socket() = 0;

 protected:
  enum class State { connecting, open, ended };
  using Frames = std::vector<OutgoingFrame>;

  // With mutex_ held:
  /// Writes as much as can be written now, by whoever calls.
  virtual void write_directly(OutgoingFrame&) {}
  /// The connection is of no use any more. @threads the I/O thread.
  virtual void disconnect(error_code why) = 0;
  /// Whether the caller has to let go of the mutex and call `arm_write`.
  bool must_arm();

  /// Makes the I/O thread write the queue.
  virtual void arm_write() = 0;
  /// Takes what was completed without being written. A write in progress may still read from it.
  virtual void retire(std::deque<OutgoingFrame>) {}
  static void complete(Frames& finished);
  /// `count` bytes were put where the assembler wanted them. @return whether to go on.
  bool take(std::size_t count);

  IoLoop& loop_;

  std::mutex mutex_;  // guards the next five
  State state_ = State::connecting;
  error_code why_;  // it ended
  /// References to what is in here stay valid until it is popped.
  std::deque<OutgoingFrame> queue_;
  bool write_armed_ = false;
  int descriptor_ = -1;  // while open

  FrameAssembler assembler_;  // the I/O thread's

 private:
  std::vector<Buffer> landing(FrameHeader const& header, std::span<std::byte const> metadata,
                              std::span<std::uint64_t const> lengths) noexcept override;
  bool on_frame(Message message) noexcept override;
  bool must_pause() noexcept override { return loop_.messages_left == 0; }
  /// With mutex_ held. @return what will not be written any more.
  std::deque<OutgoingFrame> end(error_code why);

  WorkerId const id_;
  error_code failure_;  // found while taking a frame; the I/O thread's
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/transport/impl/peer.ipp>
#endif
