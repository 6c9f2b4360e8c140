#pragma once
#include <array>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/unique_function.hpp>
#include <distgrad/rpc/host.hpp>
#include <distgrad/rpc/membership.hpp>
#include <distgrad/transport/concept.hpp>

namespace distgrad {

/// Brings each message to the handler of its kind. Rooms register theirs before the engine starts.
/// Handlers run on the I/O thread, in order of arrival, and must not wait.
class Dispatcher final : public MessageSink {
 public:
  using Handler = unique_function<void(WorkerId from, Message message)>;
  using PeerHandler = unique_function<void(WorkerId peer, error_code why)>;

  Dispatcher(Host& host, Membership const& membership)
      : host_(host), membership_(membership), observer_(host.observer()) {}

  void on(FrameKind kind, Handler handler) { handlers_[index(kind)] = std::move(handler); }
  void on_peer_lost(PeerHandler handler) { peer_handlers_.push_back(std::move(handler)); }

  std::vector<Buffer> landing(FrameHeader const& header, std::span<std::byte const> metadata,
                              std::span<std::uint64_t const> lengths) noexcept override;
  void on_message(WorkerId from, Message message) noexcept override;
  void on_peer_lost(WorkerId peer, error_code why) noexcept override;

 private:
  static std::size_t index(FrameKind kind) { return static_cast<std::size_t>(kind); }

  Host& host_;
  Membership const& membership_;
  Observer* const observer_;
  std::array<Handler, 0x80> handlers_;
  std::vector<PeerHandler> peer_handlers_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rpc/impl/dispatcher.ipp>
#endif
