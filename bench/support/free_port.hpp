// A port for two processes that meet on this machine.
#pragma once

#include "timing.hpp"

#include <cstdint>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace bench {

/// A TCP port of 127.0.0.1 that the kernel just had free.
inline std::uint16_t free_port() {
  int const fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || ::bind(fd, raw, length) != 0 || ::getsockname(fd, raw, &length) != 0)
    fail("no free port on 127.0.0.1");
  ::close(fd);
  return ntohs(address.sin_port);
}

}  // namespace bench
