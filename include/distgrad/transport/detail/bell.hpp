#pragma once
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include <distgrad/core/error.hpp>

namespace distgrad::detail {

/// A descriptor that is readable from `ring` until `silence`: what a loop outside of the library
/// waits on for work that no socket shows. Until somebody asks for the descriptor there is none.
/// @threads `ring` any, the others one at a time.
class Bell {
 public:
  Bell() = default;
  Bell(Bell const&) = delete;
  Bell& operator=(Bell const&) = delete;
  ~Bell() {
    if (fd_ >= 0) ::close(fd_);
  }

  /// It is rung at first: somebody may have before there was a descriptor.
  /// @throws Error with the system's code when the process may have no more descriptors.
  int descriptor() {
    if (fd_ < 0) {
      auto const fd = ::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
      if (fd < 0) {
        throw_error(error_code(errno, boost::system::system_category()),
                    "a transport needs an event descriptor for native_handles()");
      }
      is_rung_ = true;
      fd_ = fd;
    }
    return fd_;
  }
  /// After the work is where `silence` is followed by looking for it.
  void ring() noexcept {
    if (fd_ < 0 || is_rung_.exchange(true)) return;
    std::uint64_t const one = 1;
    (void)!::write(fd_, &one, sizeof one);
  }
  /// Before looking for work. Who rings in between is heard: the flag falls last.
  void silence() noexcept {
    if (fd_ < 0 || !is_rung_) return;
    std::uint64_t count = 0;
    (void)!::read(fd_, &count, sizeof count);
    is_rung_ = false;
  }

 private:
  std::atomic<int> fd_{-1};
  std::atomic<bool> is_rung_{false};
};

}  // namespace distgrad::detail
