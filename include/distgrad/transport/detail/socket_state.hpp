#pragma once
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

// What is asked of a TCP socket by its descriptor, on any thread.
namespace distgrad::detail {

/// Small messages go out at once, and a host that vanished is noticed after about a minute.
inline void configure_socket(int fd) noexcept {
  auto const set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

/// Whether the other side has closed.
inline bool has_ended(int fd) noexcept {
  pollfd state{fd, POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0;
}

/// Whether bytes are on their way that the other side's kernel has not got yet.
inline bool has_unacknowledged(int fd) noexcept {
  int bytes = 0;
  return ::ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace distgrad::detail
