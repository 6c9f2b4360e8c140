#pragma once
#include <distgrad/rref/control_channel.hpp>

namespace distgrad {

DISTGRAD_DECL RRefControl ControlChannel::number(RRefControl message) {
  message.request = next_++;
  message.settled = unsettled_.empty() ? message.request : unsettled_.begin()->first;
  unsettled_.emplace(message.request, message);
  return message;
}

DISTGRAD_DECL RRefControl ControlChannel::settle(std::uint64_t request) {
  auto const found = unsettled_.find(request);
  if (found == unsettled_.end()) return {};
  auto const message = found->second;
  unsettled_.erase(found);
  // The peer recorded the cancelled create as done with, so nobody waits for its answer.
  if (message.kind == FrameKind::rref_user_delete) unsettled_.erase(message.create);
  return message;
}

// A number is forgotten when all before it are done with too, or the peer says that it has the
// answers to them.
DISTGRAD_DECL bool ControlChannel::is_first(std::uint64_t request, std::uint64_t settled) {
  bool const first = request >= low_ && done_.insert(request).second;
  if (settled > low_) {
    low_ = settled;
    done_.erase(done_.begin(), done_.lower_bound(low_));
  }
  while (!done_.empty() && *done_.begin() == low_) {
    done_.erase(done_.begin());
    ++low_;
  }
  return first;
}

DISTGRAD_DECL void ControlChannel::reset() {
  unsettled_.clear();
  done_.clear();
  low_ = 1;
}

}  // namespace distgrad
