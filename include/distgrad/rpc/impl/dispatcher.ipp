#pragma once
#include <distgrad/observe/observer.hpp>
#include <distgrad/rpc/dispatcher.hpp>
#include <distgrad/rpc/traffic.hpp>

namespace distgrad {

DISTGRAD_DECL std::vector<Buffer> Dispatcher::landing(
    FrameHeader const& header, std::span<std::byte const>,
    std::span<std::uint64_t const> lengths) noexcept {
  try {
    return host_.landing(lengths, header.flags & device_flag);
  } catch (std::exception const& e) {
    host_.log(LogLevel::error, std::string("no memory for a message: ") + e.what());
    return {};
  }
}

DISTGRAD_DECL void Dispatcher::on_message(WorkerId from, Message message) noexcept {
  auto const kind = index(message.kind);
  if (observer_) observer_->received(from, traffic_kind(message.kind), frame_bytes(message));
  try {
    if (kind < handlers_.size() && handlers_[kind]) {
      handlers_[kind](from, std::move(message));
    } else {
      host_.log(LogLevel::warning, "ignored a message of unknown kind " + std::to_string(kind) +
                                       " from rank " + to_string(from));
    }
  } catch (std::exception const& e) {
    host_.log(LogLevel::error, "handling a message of kind " + std::to_string(kind) +
                                   " from rank " + to_string(from) + " failed: " + e.what());
  }
}

DISTGRAD_DECL void Dispatcher::on_peer_lost(WorkerId peer, error_code why) noexcept {
  if (observer_) observer_->lost(peer);
  for (auto& handler : peer_handlers_) {
    try {
      handler(peer, why);
    } catch (std::exception const& e) {
      host_.log(LogLevel::error, std::string("handling a lost peer failed: ") + e.what());
    }
  }
}

}  // namespace distgrad
