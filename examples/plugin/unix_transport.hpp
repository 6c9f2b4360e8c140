// How do I write a transport of my own? This one connects the workers of one machine by Unix domain
// sockets. docs/policies/transport.md grows it step by step.
#pragma once
#include <distgrad/transport/byte_stream.hpp>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>

namespace plugin {

namespace asio = boost::asio;
using namespace distgrad;

class UnixTransport {
  using Protocol = asio::local::stream_protocol;
  using Socket = Protocol::socket;

 public:
  using contract = transport_v1;
  struct Options {};

  explicit UnixTransport(Options = {}) : listener_(io_, Protocol::endpoint()) {}
  ~UnixTransport() { close(); }
  std::string local_endpoint() const { return listener_.local_endpoint().path().substr(1); }

  void start(TransportSetup setup) {
    if (!setup.sink || setup.self.value >= setup.group.size()) {
      throw Error(errc::invalid_argument, "start needs a sink and a group that has this worker");
    }
    setup_ = std::move(setup);
    for (std::uint32_t rank = 0; rank < setup_.group.size(); ++rank) {
      connect(peers_.emplace_back(*this, WorkerId{rank}));
    }
    asio::co_spawn(io_, accept(), asio::detached);
    late_.expires_after(setup_.connect_timeout);
    late_.async_wait([this](error_code) {
      for (auto& peer : peers_) {
        if (!peer.has_come) lose(peer, errc::unreachable);
      }
    });
    is_open_ = true;
  }

  void async_send(WorkerId to, Message message, SendCompletion done) {
    asio::post(io_, [this, to, message = std::move(message), done = std::move(done)]() mutable {
      send(to, std::move(message), std::move(done));
    });
    if (!is_open_) run_ready();  // nobody else will
  }

  std::size_t run_until(time_point until) {
    if (!is_open_) return 0;
    std::lock_guard turn(turn_);
    auto const before = events_;
    if (is_open_ && until > Clock::now()) {
      io_.run_one_until(until);
    } else if (is_open_) {
      io_.poll();
    }
    return events_ - before;
  }

  void wake() noexcept {
    asio::post(io_, [] {});
  }
  void close() noexcept { end(true); }
  /// Ends like a killed process, without goodbye. For tests.
  void abandon() noexcept { end(false); }

 private:
  /// A worker of the group, this one included. There is one connection for each direction.
  struct Peer : AssemblerSink {
    Peer(UnixTransport& owner, WorkerId id) : owner(owner), id(id), socket(owner.io_) {}

    std::vector<Buffer> landing(FrameHeader const& header, std::span<std::byte const> metadata,
                                std::span<std::uint64_t const> lengths) noexcept override {
      if (!owner.is_open_) return {};
      return owner.setup_.sink->landing(header, metadata, lengths);
    }
    bool on_frame(Message message) noexcept override {
      said_goodbye = message.kind == FrameKind::goodbye;
      if (!said_goodbye && owner.is_open_) {
        ++owner.events_;
        owner.setup_.sink->on_message(id, std::move(message));
      }
      return !said_goodbye;
    }

    UnixTransport& owner;
    WorkerId const id;
    Socket socket;                    // to send to it
    std::deque<OutgoingFrame> queue;  // the first one is being written
    error_code lost;                  // why no more messages pass
    bool has_come = false;            // it has connected to us
    bool said_goodbye = false;
  };

  // ---- Connections. Our end is named after both sides, so that the other one knows who comes.

  static std::string name(std::string const& from, std::string const& to) {
    return '\0' + from + '>' + to;  // a zero in front: a name that is no file
  }

  void connect(Peer& peer) {
    auto const& there = setup_.group[peer.id.value].endpoint;
    error_code failed;
    peer.socket.open();
    peer.socket.bind(name(local_endpoint(), there), failed);
    if (!failed) peer.socket.connect('\0' + there, failed);
    if (failed) asio::post(io_, [this, &peer] { lose(peer, errc::unreachable); });
  }

  asio::awaitable<void> accept() {
    for (;;) {
      Protocol::endpoint from;
      auto socket = co_await listener_.async_accept(from, asio::use_awaitable);
      for (auto& peer : peers_) {
        auto const expected = name(setup_.group[peer.id.value].endpoint, local_endpoint());
        if (peer.has_come || from.path() != expected || !is_same_user(socket)) continue;
        peer.has_come = true;
        asio::co_spawn(io_, read(peer, std::move(socket)), asio::detached);
        break;
      }
    }
  }

  static bool is_same_user(Socket& socket) {
    ucred user{};
    socklen_t size = sizeof user;
    return getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &user, &size) == 0 &&
           user.uid == getuid();
  }

  // ---- Messages.

  void send(WorkerId to, Message message, SendCompletion done) {
    auto const refused = why_not(to, message);
    OutgoingFrame frame(std::move(message), std::move(done));
    if (refused) return frame.complete(refused);
    push(peers_[to.value], std::move(frame));
  }

  error_code why_not(WorkerId to, Message const& message) const {
    if (has_ended_ || peers_.empty()) return errc::closed;
    if (to.value >= peers_.size()) return errc::unknown_worker;
    if (auto const lost = peers_[to.value].lost) return lost;
    return check_outgoing(message.header(), setup_.limits);
  }

  void push(Peer& peer, OutgoingFrame frame) {
    peer.queue.push_back(std::move(frame));
    if (peer.queue.size() == 1) write(peer);
  }

  void write(Peer& peer) {
    std::array<iovec, 64> pieces;
    auto const used = peer.queue.front().gather(pieces);
    peer.socket.async_write_some(buffers<asio::const_buffer>({pieces.data(), used}),
                                 [this, &peer](error_code failed, std::size_t size_bytes) {
                                   // After a failure `read` finds out why.
                                   if (!failed && !peer.lost) on_written(peer, size_bytes);
                                 });
  }

  void on_written(Peer& peer, std::size_t size_bytes) {
    auto& queue = peer.queue;
    queue.front().advance(size_bytes);
    if (!queue.front().is_finished()) return write(peer);
    auto finished = std::move(queue.front());
    queue.pop_front();
    if (!queue.empty()) write(peer);
    ++events_;
    finished.complete({});
  }

  asio::awaitable<void> read(Peer& peer, Socket socket) {
    FrameAssembler assembler(setup_.limits, peer);
    std::array<iovec, 64> places;
    error_code why;
    while (!why && !peer.lost) {
      auto const used = assembler.prepare(places);
      auto const [failed, size_bytes] =
          co_await socket.async_read_some(buffers<asio::mutable_buffer>({places.data(), used}),
                                          asio::as_tuple(asio::use_awaitable));
      why = failed ? errc::peer_lost : assembler.commit(size_bytes);
      if (peer.said_goodbye) why = errc::closed;
    }
    lose(peer, why);
  }

  template <class Buffer>
  static std::vector<Buffer> buffers(std::span<iovec const> pieces) {
    std::vector<Buffer> all;
    for (auto const& piece : pieces) all.emplace_back(piece.iov_base, piece.iov_len);
    return all;
  }

  // ---- Endings.

  void lose(Peer& peer, error_code why) {
    if (drop(peer, why) && is_open_) setup_.sink->on_peer_lost(peer.id, why);
  }

  /// Completes what waits for the peer. @return false if it was lost before.
  bool drop(Peer& peer, error_code why) {
    if (peer.lost) return false;
    ++events_;
    peer.lost = why;
    peer.socket.close();  // nothing is written any more from the memory of these frames
    for (auto& frame : std::exchange(peer.queue, {})) frame.complete(why);
    return true;
  }

  void end(bool says_goodbye) noexcept {
    if (!is_open_.exchange(false)) return;
    asio::post(io_, [this, says_goodbye] { stop_sending(says_goodbye); });
    std::lock_guard turn(turn_);  // whoever was inside run_until has left
    auto const deadline = Clock::now() + std::chrono::seconds(1);
    while (!is_flushed() && Clock::now() < deadline) io_.run_one_until(deadline);
    for (auto& peer : peers_) drop(peer, errc::closed);
    listener_.close();
    late_.cancel();
    run_ready();
  }

  void stop_sending(bool says_goodbye) {
    has_ended_ = true;
    for (auto& peer : peers_) {
      if (!says_goodbye) drop(peer, errc::closed);
      if (!peer.lost) push(peer, {Message{.kind = FrameKind::goodbye}, nullptr});
    }
  }

  bool is_flushed() const {
    return has_ended_ && std::all_of(peers_.begin(), peers_.end(),
                                     [](Peer const& peer) { return peer.queue.empty(); });
  }

  void run_ready() {
    std::lock_guard turn(turn_);
    io_.poll();
  }

  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_ = asio::make_work_guard(io_);
  Protocol::acceptor listener_;
  asio::steady_timer late_{io_};
  std::atomic<bool> is_open_{false};
  std::recursive_mutex turn_;  // held by the thread that runs io_, which owns what follows
  TransportSetup setup_;
  std::deque<Peer> peers_;  // by rank
  std::size_t events_ = 0;
  bool has_ended_ = false;
};

}  // namespace plugin
