// Clocks, medians and the heap's settings: what every benchmark needs.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <malloc.h>

namespace bench {

using Clock = std::chrono::steady_clock;

inline double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  std::size_t const middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Keeps freed memory in the process: without this, glibc gives big blocks back to the kernel after
/// every call, and the first touch of the next block costs more than what is measured.
inline void keep_freed_memory() {
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest value that glibc accepts
  mallopt(M_TOP_PAD, 16 << 20);
}

[[noreturn]] inline void fail(std::string const& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

/// Ends the measurement when its result is wrong: a fast wrong answer must not be measured.
inline void require(bool holds, char const* what) {
  if (!holds) throw std::runtime_error(std::string("wrong result: ") + what);
}

}  // namespace bench
