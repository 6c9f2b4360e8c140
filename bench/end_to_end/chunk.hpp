// What the conductor and the drivers say to each other, and what a driver does: run a short chunk
// of calls, answer its median.
#pragma once

#include "../support/timing.hpp"

#include <cstdint>
#include <cstdio>
#include <functional>

#include <unistd.h>

namespace bench {

inline constexpr int command_fd = 3;  // the conductor's end closed: the driver ends
inline constexpr int answer_fd = 4;

/// What one of the processes is.
struct Role {
  std::string contestant;
  int rank = 0;  // 0: driver, 1: peer
  std::uint16_t port = 0;
};

struct ChunkRequest {
  std::int32_t row = 0;
  std::int32_t warm_up_calls = 0;
  std::int32_t least_calls = 0;
  std::int32_t milliseconds = 0;
};

struct Answer {  // small enough for one atomic write to a pipe
  std::int32_t ok = 1;
  std::int32_t calls = 0;
  double median_us = 0;
  char text[240] = {};

  static Answer failed(char const* why) {
    Answer answer{.ok = 0};
    std::snprintf(answer.text, sizeof answer.text, "%s", why);
    return answer;
  }
};

/// @return false at the end of the stream; throws on an error or a partial record.
inline bool read_all(int fd, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  for (std::size_t done = 0; done < bytes;) {
    ssize_t const n = ::read(fd, at + done, bytes - done);
    if (n == 0 && done == 0) return false;
    if (n == 0) throw std::runtime_error("the other process ended in the middle of a message");
    if (n < 0 && errno != EINTR) fail("read");
    if (n > 0) done += static_cast<std::size_t>(n);
  }
  return true;
}

inline void write_all(int fd, void const* data, std::size_t bytes) {
  auto const* at = static_cast<char const*>(data);
  for (std::size_t done = 0; done < bytes;) {
    ssize_t const n = ::write(fd, at + done, bytes - done);
    if (n < 0 && errno != EINTR) fail("write");
    if (n > 0) done += static_cast<std::size_t>(n);
  }
}

/// One call that is measured.
using Call = std::function<void()>;

inline Answer run_chunk(Call const& call, ChunkRequest const& request) {
  for (int i = 0; i < request.warm_up_calls; ++i) call();
  std::vector<double> times;
  auto const start = Clock::now();
  while (microseconds_since(start) < request.milliseconds * 1e3 ||
         times.size() < static_cast<std::size_t>(request.least_calls)) {
    auto const begin = Clock::now();
    call();
    times.push_back(microseconds_since(begin));
  }
  return {.calls = static_cast<std::int32_t>(times.size()), .median_us = median(times)};
}

/// Says that the driver is ready, then runs chunks of `calls[row]` until the conductor is done.
inline void serve_chunks(std::vector<Call> const& calls) {
  Answer answer;
  write_all(answer_fd, &answer, sizeof answer);
  for (ChunkRequest request; read_all(command_fd, &request, sizeof request);) {
    try {
      answer = run_chunk(calls.at(static_cast<std::size_t>(request.row)), request);
    } catch (std::exception const& error) {
      answer = Answer::failed(error.what());
    }
    write_all(answer_fd, &answer, sizeof answer);
  }
}

}  // namespace bench
