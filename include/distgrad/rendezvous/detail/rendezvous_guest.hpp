#pragma once
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <distgrad/config.hpp>
#include <distgrad/core/result.hpp>
#include <distgrad/rendezvous/detail/rendezvous_messages.hpp>
#include <distgrad/wire/host_port.hpp>

namespace distgrad::detail {

/// The side of every rank but 0. Runs on the calling thread only.
class RendezvousGuest {
 public:
  RendezvousGuest(Registration self, std::string job_secret, HostPort master)
      : self_(std::move(self)), secret_(std::move(job_secret)), master_(std::move(master)) {}

  Result<std::vector<PeerAddress>> run(Deadline deadline);

 private:
  using tcp = boost::asio::ip::tcp;

  /// Connects, registers and waits for the answer. @return why that failed, if so.
  error_code attempt(Deadline deadline, RendezvousAnswer& answer);
  error_code connect(Deadline deadline);
  error_code receive(Deadline deadline, RendezvousAnswer& answer);
  /// Starts an operation and runs it to its end, or cuts it off at the deadline.
  template <class Start>
  error_code complete(Deadline deadline, Start start);
  ErrorReport why_in_vain(Clock::duration tried, int attempts, error_code last) const;

  Registration self_;
  std::string secret_;
  HostPort master_;
  boost::asio::io_context io_{1};
  tcp::socket socket_{io_};
  bool was_registered_ = false;
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rendezvous/impl/rendezvous_guest.ipp>
#endif
