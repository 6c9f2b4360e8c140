#pragma once
#include <algorithm>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <distgrad/rendezvous/detail/rendezvous_host.hpp>

namespace distgrad::detail {

inline ErrorReport cannot_host(Registration const& self, std::string const& address,
                               std::uint16_t port, error_code ec) {
  auto const text = "rank 0 ('" + self.self.info.name + "') cannot listen on " +
                    to_string(HostPort{address.empty() ? "*" : address, port}) + ": " +
                    ec.message();
  if (ec == boost::system::errc::address_in_use) {
    return {errc::address_in_use,
            text +
                "; another program or an earlier run of this job holds the "
                "port: end it, or choose another MASTER_PORT for all workers"};
  }
  return {errc::unreachable, text + "; MASTER_ADDR must be an address of rank 0's machine"};
}

DISTGRAD_DECL RendezvousHost::RendezvousHost(Registration self, std::string job_secret)
    : self_(std::move(self)),
      secret_(std::move(job_secret)),
      table_(self_.world_size),
      acceptor_(io_),
      pause_(io_) {}

DISTGRAD_DECL std::optional<ErrorReport> RendezvousHost::listen(std::string const& bind_address,
                                                                std::uint16_t port) {
  using boost::asio::ip::tcp;
  error_code ec;
  if (bind_address.empty()) {
    ec = listen({tcp::v6(), port}, true);
    if (ec && ec != boost::system::errc::address_in_use) {
      ec = listen({tcp::v4(), port}, false);  // a host without IPv6
    }
  } else {
    tcp::resolver resolver(io_);
    auto const found = resolver.resolve(bind_address, std::to_string(port), ec);
    if (!ec) ec = listen(found->endpoint(), false);
  }
  if (ec) return cannot_host(self_, bind_address, port, ec);
  return std::nullopt;
}

DISTGRAD_DECL error_code RendezvousHost::listen(boost::asio::ip::tcp::endpoint const& at,
                                                bool dual_stack) {
  error_code ec;
  acceptor_.close(ec);
  acceptor_.open(at.protocol(), ec);
  if (!ec) acceptor_.set_option(boost::asio::socket_base::reuse_address(true), ec);
  if (!ec && dual_stack) acceptor_.set_option(boost::asio::ip::v6_only(false), ec);
  if (!ec) acceptor_.bind(at, ec);
  if (!ec) acceptor_.listen(boost::asio::socket_base::max_listen_connections, ec);
  if (!ec) port_ = acceptor_.local_endpoint(ec).port();
  return ec;
}

DISTGRAD_DECL Result<std::vector<PeerAddress>> RendezvousHost::run(Deadline deadline) {
  accept();
  if (auto problem = table_.add(self_)) fail(std::move(*problem));
  auto const started = Clock::now();
  while (!is_over_ && !table_.is_complete() && io_.run_one_until(deadline.at)) {
  }
  if (!is_over_ && !table_.is_complete()) {
    fail({errc::timeout, "rank 0 ('" + self_.self.info.name + "') waited " +
                             seconds_text(Clock::now() - started) + " on port " +
                             std::to_string(port_) + ", but " + table_.missing_text() +
                             " did not join; look at their output, and check that they use this "
                             "MASTER_ADDR and MASTER_PORT"});
  }
  if (!is_over_) finish();
  // After a failure, late workers are told, too; after success, there are none.
  run_until_answered(Deadline::after(farewell_timeout), self_.world_size - 1);
  if (problem_) return std::move(*problem_);
  return table_.group();
}

DISTGRAD_DECL void RendezvousHost::run_until_answered(Deadline deadline,
                                                      std::size_t least_answers) {
  while (answered_ < least_answers && !deadline.has_passed()) io_.run_one_until(deadline.at);
}

DISTGRAD_DECL void RendezvousHost::accept() {
  acceptor_.async_accept([this](error_code ec, Socket socket) {
    if (ec == boost::asio::error::operation_aborted) return;
    if (!ec) {
      greet(std::move(socket));
      return accept();
    }
    pause_.expires_after(milliseconds(100));  // out of descriptors: retrying at once would spin
    pause_.async_wait([this](error_code stopped) {
      if (!stopped) accept();
    });
  });
}

DISTGRAD_DECL void RendezvousHost::greet(Socket socket) {
  auto const is_stranger = [](VisitorPtr const& v) { return !v->registered; };
  if (std::count_if(visitors_.begin(), visitors_.end(), is_stranger) >=
      std::ptrdiff_t{max_unregistered}) {
    auto const oldest = *std::find_if(visitors_.begin(), visitors_.end(), is_stranger);
    dismiss(oldest);
  }
  auto const visitor = std::make_shared<Visitor>(std::move(socket));
  visitors_.push_back(visitor);
  visitor->timer.expires_after(registration_timeout);
  visitor->timer.async_wait([this, visitor](error_code ec) {
    if (!ec) dismiss(visitor);
  });
  boost::asio::async_read(visitor->socket, boost::asio::buffer(visitor->header_bytes),
                          [this, visitor](error_code ec, std::size_t) { on_header(visitor, ec); });
}

DISTGRAD_DECL void RendezvousHost::on_header(VisitorPtr const& visitor, error_code ec) {
  if (!ec) ec = decode_frame_header(visitor->header_bytes, registration_limits, visitor->header);
  if (ec == errc::version_mismatch) {
    return answer(visitor, encode_problem({errc::version_mismatch,
                                           "rank 0 speaks another version of the protocol; build "
                                           "all workers with the same distgrad"}));
  }
  if (ec) return dismiss(visitor);
  visitor->metadata.resize(static_cast<std::size_t>(visitor->header.metadata_bytes));
  boost::asio::async_read(
      visitor->socket, boost::asio::buffer(visitor->metadata),
      [this, visitor](error_code ec, std::size_t) { on_registration(visitor, ec); });
}

DISTGRAD_DECL void RendezvousHost::on_registration(VisitorPtr const& visitor, error_code ec) {
  Registration registration;
  if (!ec) ec = decode_registration(visitor->header, visitor->metadata, secret_, registration);
  if (ec == errc::bad_secret) {
    return answer(visitor, encode_problem({errc::bad_secret,
                                           "rank 0 does not know this job "
                                           "secret; give all workers the same"}));
  }
  if (ec) return dismiss(visitor);
  visitor->timer.cancel();
  forget_departed();
  visitor->registered = registration.self.info.id;
  if (problem_) return answer(visitor, encode_problem(*problem_));
  if (auto problem = table_.add(registration)) return fail(std::move(*problem));
  watch(visitor);
}

/// A worker that ends before the group is complete may be started again.
DISTGRAD_DECL void RendezvousHost::watch(VisitorPtr const& visitor) {
  visitor->socket.async_wait(Socket::wait_read, [this, visitor](error_code ec) {
    if (ec || is_over_ || !visitor->socket.is_open()) return;
    leave(visitor);
  });
}

/// A worker that was started again may be here before the end of its first life was handled.
DISTGRAD_DECL void RendezvousHost::forget_departed() {
  auto const visitors = visitors_;
  for (auto const& visitor : visitors) {
    if (!visitor->registered || !visitor->socket.is_open() || !has_ended(visitor->socket)) continue;
    leave(visitor);
  }
}

/// Who is registered says nothing more: whatever can be read is the end.
DISTGRAD_DECL bool RendezvousHost::has_ended(Socket& socket) {
  std::byte next;
  error_code ec;
  socket.non_blocking(true, ec);
  if (!ec) socket.receive(boost::asio::buffer(&next, 1), Socket::message_peek, ec);
  return ec != boost::asio::error::would_block;
}

DISTGRAD_DECL void RendezvousHost::leave(VisitorPtr const& visitor) {
  table_.remove(*visitor->registered);
  dismiss(visitor);
}

DISTGRAD_DECL void RendezvousHost::answer(VisitorPtr const& visitor, std::vector<std::byte> frame) {
  visitor->answer = std::move(frame);
  boost::asio::async_write(visitor->socket, boost::asio::buffer(visitor->answer),
                           [this, visitor](error_code, std::size_t) {
                             error_code ignored;
                             visitor->socket.shutdown(Socket::shutdown_send, ignored);
                             if (visitor->registered) ++answered_;
                             dismiss(visitor);
                           });
}

DISTGRAD_DECL void RendezvousHost::dismiss(VisitorPtr const& visitor) {
  error_code ignored;
  visitor->timer.cancel();
  visitor->socket.close(ignored);
  visitors_.remove(visitor);
}

DISTGRAD_DECL void RendezvousHost::fail(ErrorReport problem) {
  is_over_ = true;
  problem_ = std::move(problem);
  finish();
}

/// Tells all who registered.
DISTGRAD_DECL void RendezvousHost::finish() {
  is_over_ = true;
  auto const frame = problem_ ? encode_problem(*problem_) : encode_group(table_.group());
  for (auto const& visitor : visitors_) {
    if (visitor->registered) answer(visitor, frame);
  }
}

}  // namespace distgrad::detail
