#pragma once
#include <utility>

#include <boost/asio/ip/address.hpp>

#include <distgrad/rendezvous/detail/rendezvous_guest.hpp>
#include <distgrad/rendezvous/detail/rendezvous_host.hpp>
#include <distgrad/rendezvous/tcp_rendezvous.hpp>

namespace distgrad {
namespace detail {

/// A job on one machine should not be visible from others.
inline std::string default_bind_address(std::string const& master_address) {
  if (master_address == "localhost") return "127.0.0.1";
  error_code ec;
  auto const address = boost::asio::ip::make_address(master_address, ec);
  return !ec && address.is_loopback() ? master_address : std::string();
}

}  // namespace detail

DISTGRAD_DECL std::vector<PeerAddress> TcpRendezvous::exchange(PeerAddress self,
                                                               std::uint32_t world_size,
                                                               Deadline deadline) {
  return try_exchange(std::move(self), world_size, deadline).value();
}

DISTGRAD_DECL Result<std::vector<PeerAddress>> TcpRendezvous::try_exchange(PeerAddress self,
                                                                           std::uint32_t world_size,
                                                                           Deadline deadline) {
  if (auto problem = check(self, world_size)) return std::move(*problem);
  if (world_size == 1) return std::vector<PeerAddress>{std::move(self)};
  detail::Registration registration{std::move(self), world_size};
  if (registration.self.info.id != WorkerId{0}) {
    detail::RendezvousGuest guest(std::move(registration), options_.job_secret,
                                  {options_.master_address, options_.master_port});
    return guest.run(deadline);
  }
  auto const bind = options_.bind_address.empty()
                        ? detail::default_bind_address(options_.master_address)
                        : options_.bind_address;
  detail::RendezvousHost host(std::move(registration), options_.job_secret);
  if (auto const problem = host.listen(bind, options_.master_port)) {
    return ErrorReport{problem->code, problem->text};
  }
  if (options_.on_listening) options_.on_listening(host.port());
  return host.run(deadline);
}

DISTGRAD_DECL std::optional<ErrorReport> TcpRendezvous::check(PeerAddress const& self,
                                                              std::uint32_t world_size) const {
  auto const invalid = [](std::string text) {
    return ErrorReport{errc::invalid_argument, std::move(text)};
  };
  if (auto const problem = detail::find_problem(world_size, self.info)) {
    return ErrorReport{problem->code, problem->text};
  }
  if (options_.job_secret.size() > max_job_secret_bytes) {
    return invalid("the job secret is longer than " + std::to_string(max_job_secret_bytes) +
                   " bytes");
  }
  if (self.devices.size() > detail::max_devices_bytes) {
    return invalid("worker '" + self.info.name + "' says " + std::to_string(self.devices.size()) +
                   " bytes about its devices, at most " +
                   std::to_string(detail::max_devices_bytes) +
                   " are passed on; give device maps only for peers that tensors go to");
  }
  if (world_size == 1) {
    if (auto const problem = detail::find_problem({self})) {
      return ErrorReport{problem->code, problem->text};
    }
  } else if (self.info.id != WorkerId{0} && options_.master_port == 0) {
    return invalid("worker '" + self.info.name + "' needs the port of rank 0: set MASTER_PORT");
  }
  return std::nullopt;
}

}  // namespace distgrad
