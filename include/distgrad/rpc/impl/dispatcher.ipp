#pragma once
#include <cstdio>

#include <distgrad/observe/observer.hpp>
#include <distgrad/rpc/dispatcher.hpp>
#include <distgrad/rpc/traffic.hpp>

namespace distgrad {
namespace detail {

/// As docs/wire-format.md lists them.
inline std::string kind_text(FrameKind kind) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02x", unsigned(kind) & 0xffff);
  return text;
}

}  // namespace detail

DISTGRAD_DECL std::vector<Buffer> Dispatcher::landing(
    FrameHeader const& header, std::span<std::byte const>,
    std::span<std::uint64_t const> lengths) noexcept {
  try {
    return host_.landing(lengths, header.flags & device_flag);
  } catch (std::exception const& e) {
    host_.log().write(LogLevel::error, "rpc", "no memory for a message",
                      {{"bytes", header.payload_bytes}, {"reason", e.what()}});
    return {};
  }
}

DISTGRAD_DECL void Dispatcher::on_message(WorkerId from, Message message) noexcept {
  auto const kind = message.kind;
  if (observer_) observer_->received(from, traffic_kind(kind), frame_bytes(message));
  try {
    if (index(kind) < handlers_.size() && handlers_[index(kind)]) {
      handlers_[index(kind)](from, std::move(message));
    } else {
      host_.log().write(LogLevel::warning, "rpc", "ignored a message of an unknown kind",
                        {{"kind", detail::kind_text(kind)}, {"peer", membership_.name(from)}});
    }
  } catch (std::exception const& e) {
    host_.log().write(LogLevel::error, "rpc", "a message could not be handled",
                      {{"kind", detail::kind_text(kind)},
                       {"peer", membership_.name(from)},
                       {"reason", e.what()}});
  }
}

DISTGRAD_DECL void Dispatcher::on_peer_lost(WorkerId peer, error_code why) noexcept {
  if (observer_) observer_->lost(peer);
  for (auto& handler : peer_handlers_) {
    try {
      handler(peer, why);
    } catch (std::exception const& e) {
      host_.log().write(LogLevel::error, "rpc", "the loss of a peer could not be handled",
                        {{"peer", membership_.name(peer)}, {"reason", e.what()}});
    }
  }
}

}  // namespace distgrad
