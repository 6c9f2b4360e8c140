// The floor: a blocking TCP echo between two processes, one thread each, no framing.
#pragma once

#include "chunk.hpp"

#include <thread>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace bench {

inline sockaddr_in local_address(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

inline void send_at_once(int fd) {
  int const on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Rank 0's end of one connection whose messages all have the same size.
class EchoDriver {
 public:
  EchoDriver(std::uint16_t port, std::size_t bytes) : buffer_(bytes, 'x'), back_(bytes) {
    auto const end = Clock::now() + std::chrono::seconds(30);
    while (!connect(port)) {  // the peer may not listen yet
      if (Clock::now() > end) fail("no echo peer on port " + std::to_string(port));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    send_at_once(fd_);
    std::uint64_t const size = bytes;
    write_all(fd_, &size, sizeof size);
  }
  EchoDriver(EchoDriver&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        buffer_(std::move(other.buffer_)),
        back_(std::move(other.back_)) {}
  ~EchoDriver() {
    if (fd_ >= 0) ::close(fd_);
  }

  void round_trip() {
    write_all(fd_, buffer_.data(), buffer_.size());
    if (!read_all(fd_, back_.data(), back_.size())) fail("the echo peer is gone");
  }

 private:
  bool connect(std::uint16_t port) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto const address = local_address(port);
    if (::connect(fd_, reinterpret_cast<sockaddr const*>(&address), sizeof address) == 0)
      return true;
    ::close(std::exchange(fd_, -1));
    return false;
  }

  int fd_ = -1;
  std::vector<char> buffer_, back_;
};

inline void serve_echo_connection(int fd) {
  send_at_once(fd);
  std::uint64_t size = 0;
  if (!read_all(fd, &size, sizeof size)) return;
  std::vector<char> buffer(size);
  while (read_all(fd, buffer.data(), buffer.size())) write_all(fd, buffer.data(), buffer.size());
}

/// Rank 1: one blocking thread per connection; ends when the first connection does.
inline void run_echo_peer(std::uint16_t port, std::size_t connections) {
  int const listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int const on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  auto const address = local_address(port);
  if (::bind(listener, reinterpret_cast<sockaddr const*>(&address), sizeof address) != 0 ||
      ::listen(listener, 16) != 0)
    fail("cannot listen on port " + std::to_string(port));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < connections; ++i)
    threads.emplace_back(serve_echo_connection, ::accept(listener, nullptr, nullptr));
  for (auto& thread : threads) thread.join();
}

/// What the echo does for one row: `round_trips` one after the other of `bytes` each.
struct EchoRow {
  std::size_t bytes = 0;
  int round_trips = 1;
};

inline void run_echo_role(Role const& role, std::vector<EchoRow> const& rows) {
  if (role.rank == 1) return run_echo_peer(role.port, rows.size());
  std::vector<EchoDriver> drivers;
  for (auto const& row : rows) drivers.emplace_back(role.port, row.bytes);
  std::vector<Call> calls;
  for (std::size_t i = 0; i < rows.size(); ++i)
    calls.push_back([&driver = drivers[i], n = rows[i].round_trips] {
      for (int k = 0; k < n; ++k) driver.round_trip();
    });
  serve_chunks(calls);
}

}  // namespace bench
