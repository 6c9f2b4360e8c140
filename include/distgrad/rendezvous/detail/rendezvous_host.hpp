#pragma once
#include <array>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <distgrad/config.hpp>
#include <distgrad/core/result.hpp>
#include <distgrad/rendezvous/detail/rendezvous_messages.hpp>
#include <distgrad/wire/host_port.hpp>

namespace distgrad::detail {

/// How long a stranger has to register, and how many of them are listened to at once.
inline constexpr milliseconds registration_timeout{5000};
inline constexpr std::size_t max_unregistered = 256;
/// How long rank 0 stays after a failure to tell late workers.
inline constexpr milliseconds farewell_timeout{2000};

/// Rank 0's side. Runs on the calling thread only.
class RendezvousHost {
 public:
  RendezvousHost(Registration self, std::string job_secret);

  /// @return address_in_use or unreachable, naming the address and port.
  std::optional<ErrorReport> listen(std::string const& bind_address, std::uint16_t port);

  std::uint16_t port() const { return port_; }
  /// Once it listens. An error comes after every worker that could be reached was told.
  Result<std::vector<PeerAddress>> run(Deadline deadline);

 private:
  using Socket = boost::asio::ip::tcp::socket;
  struct Visitor {
    explicit Visitor(Socket s) : socket(std::move(s)), timer(socket.get_executor()) {}
    Socket socket;
    boost::asio::steady_timer timer;
    FrameHeaderBytes header_bytes{};
    FrameHeader header;
    std::vector<std::byte> metadata;
    std::vector<std::byte> answer;
    std::optional<WorkerId> registered;
  };
  using VisitorPtr = std::shared_ptr<Visitor>;

  error_code listen(boost::asio::ip::tcp::endpoint const& at, bool dual_stack);
  void accept();
  void greet(Socket socket);
  void on_header(VisitorPtr const& visitor, error_code ec);
  void on_registration(VisitorPtr const& visitor, error_code ec);
  void watch(VisitorPtr const& visitor);
  void forget_departed();
  static bool has_ended(Socket& socket);
  void leave(VisitorPtr const& visitor);
  void answer(VisitorPtr const& visitor, std::vector<std::byte> frame);
  void dismiss(VisitorPtr const& visitor);
  void fail(ErrorReport problem);
  void finish();
  void run_until_answered(Deadline deadline, std::size_t least_answers);

  Registration self_;
  std::string secret_;
  RegistrationTable table_;
  boost::asio::io_context io_{1};
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  std::uint16_t port_ = 0;
  std::list<VisitorPtr> visitors_;
  std::size_t answered_ = 0;  // workers that have been told
  bool is_over_ = false;
  std::optional<ErrorReport> problem_;
};

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rendezvous/impl/rendezvous_host.ipp>
#endif
