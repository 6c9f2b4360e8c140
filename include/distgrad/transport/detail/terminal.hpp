#pragma once
#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include <string>

#include <boost/asio/serial_port_base.hpp>

#include <distgrad/core/error.hpp>

namespace distgrad::detail {

/// Makes a terminal pass bytes as they are; other descriptors stay as they are.
/// @param baud_rate 0 leaves it.
inline error_code make_raw(int descriptor, unsigned baud_rate) {
  termios settings{};
  if (::isatty(descriptor) == 0) return {};
  ::tcgetattr(descriptor, &settings);
  ::cfmakeraw(&settings);
  settings.c_cflag |= CREAD | CLOCAL;
  error_code ec;
  if (baud_rate != 0) boost::asio::serial_port_base::baud_rate(baud_rate).store(settings, ec);
  if (!ec && ::tcsetattr(descriptor, TCSANOW, &settings) != 0) {
    ec.assign(errno, boost::system::system_category());
  }
  return ec;
}

/// Opens a terminal for raw reading and writing. @return a descriptor, or -1 and `ec`.
inline int open_terminal(std::string const& device, unsigned baud_rate, error_code& ec) {
  int const descriptor = ::open(device.c_str(), O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) {
    ec.assign(errno, boost::system::system_category());
    return -1;
  }
  ec = make_raw(descriptor, baud_rate);
  if (!ec) return descriptor;
  ::close(descriptor);
  return -1;
}

}  // namespace distgrad::detail
