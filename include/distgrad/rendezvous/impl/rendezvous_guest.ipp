#pragma once
#include <poll.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <distgrad/rendezvous/detail/rendezvous_guest.hpp>

namespace distgrad::detail {

/// One address of rank 0 may be a black hole.
inline constexpr milliseconds join_attempt_timeout{3000};

template <class Start>
error_code RendezvousGuest::complete(Deadline deadline, Start start) {
  std::optional<error_code> result;
  io_.restart();
  start([&result](error_code ec, auto&&...) { result = ec; });
  while (!result && !deadline.has_passed()) io_.run_one_until(deadline.at);
  if (result) return *result;
  error_code ignored;
  socket_.close(ignored);
  while (!result) io_.run_one();
  return errc::timeout;
}

DISTGRAD_DECL Result<std::vector<PeerAddress>> RendezvousGuest::run(Deadline deadline) {
  auto const started = Clock::now();
  std::minstd_rand random(self_.self.info.incarnation.value + self_.self.info.id.value + 1);
  error_code reason;
  int pause = 20;  // milliseconds; grows, and differs between workers so that they do not stampede
  for (int attempts = 1;; ++attempts) {
    RendezvousAnswer answer;
    auto const failed = attempt(deadline, answer);
    error_code ignored;
    socket_.close(ignored);
    if (!failed && answer.error) return ErrorReport{answer.error->code, answer.error->text};
    if (!failed) return std::move(answer.group);
    // An attempt that the deadline cuts short says less than the one before.
    if (failed != errc::timeout || was_registered_ || !reason) reason = failed;
    if (deadline.has_passed(Clock::now() + milliseconds(pause))) {
      return why_in_vain(Clock::now() - started, attempts, reason);
    }
    ::poll(nullptr, 0, pause / 2 + static_cast<int>(random() % pause));
    pause = std::min(2 * pause, 500);
  }
}

DISTGRAD_DECL error_code RendezvousGuest::attempt(Deadline deadline, RendezvousAnswer& answer) {
  if (auto const failed = connect(deadline)) return failed;
  auto const frame = encode_registration(self_, secret_);
  auto const sent = complete(deadline, [&](auto handler) {
    boost::asio::async_write(socket_, boost::asio::buffer(frame), handler);
  });
  if (sent) return sent;
  was_registered_ = true;
  return receive(deadline, answer);
}

DISTGRAD_DECL error_code RendezvousGuest::connect(Deadline deadline) {
  error_code failed;
  tcp::resolver resolver(io_);
  auto const addresses = resolver.resolve(master_.host, std::to_string(master_.port), failed);
  if (failed) return failed;
  for (auto const& entry : addresses) {
    socket_ = tcp::socket(io_);
    auto const soon = Deadline::after(join_attempt_timeout);
    failed = complete(std::min(soon.at, deadline.at) == soon.at ? soon : deadline,
                      [&](auto handler) { socket_.async_connect(entry.endpoint(), handler); });
    if (!failed) break;
  }
  return failed;
}

DISTGRAD_DECL error_code RendezvousGuest::receive(Deadline deadline, RendezvousAnswer& answer) {
  FrameHeaderBytes bytes;
  auto const read = [&](auto buffer) {
    return complete(deadline,
                    [&](auto handler) { boost::asio::async_read(socket_, buffer, handler); });
  };
  if (auto const failed = read(boost::asio::buffer(bytes))) return failed;
  FrameHeader header;
  if (auto const bad = decode_frame_header(bytes, answer_limits, header)) return bad;
  std::vector<std::byte> metadata(static_cast<std::size_t>(header.metadata_bytes));
  if (auto const failed = read(boost::asio::buffer(metadata))) return failed;
  auto decoded = decode_answer(header, metadata, self_.world_size);
  if (!decoded) return errc::bad_message;
  answer = std::move(*decoded);
  return {};
}

DISTGRAD_DECL ErrorReport RendezvousGuest::why_in_vain(Clock::duration tried, int attempts,
                                                       error_code last) const {
  auto const& info = self_.self.info;
  auto const text = "worker '" + info.name + "' (rank " + to_string(info.id) + ") tried for " +
                    seconds_text(tried) + " to join the group at " + to_string(master_);
  auto const end = " (" + std::to_string(attempts) + " attempts, the last: " + last.message() + ")";
  if (last == errc::timeout && was_registered_) {
    return {errc::timeout, text +
                               "; rank 0 answers there, but the group was not complete in time: "
                               "look at rank 0's output for the missing ranks" +
                               end};
  }
  return {errc::unreachable, text +
                                 "; check that rank 0 runs, that MASTER_ADDR and MASTER_PORT name "
                                 "it, and that no firewall is in between" +
                                 end};
}

}  // namespace distgrad::detail
