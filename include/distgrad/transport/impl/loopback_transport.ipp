#pragma once
#include <algorithm>
#include <cstring>
#include <utility>

#include <distgrad/transport/detail/landing.hpp>
#include <distgrad/transport/detail/outgoing_check.hpp>
#include <distgrad/transport/detail/setup_check.hpp>
#include <distgrad/transport/loopback_transport.hpp>

namespace distgrad {
namespace detail {

DISTGRAD_DECL error_code LoopbackInbox::push(LoopbackItem item) {
  {
    std::lock_guard lock(mutex_);
    if (shut_) return shut_;
    items_.push_back(std::move(item));
  }
  changed_.notify_one();
  bell_.ring();
  return {};
}

DISTGRAD_DECL std::size_t LoopbackInbox::wait(time_point until) {
  bell_.silence();
  std::unique_lock lock(mutex_);
  auto const ready = [this] { return !items_.empty() || woken_ || shut_; };
  if (until == time_point::max()) {
    changed_.wait(lock, ready);
  } else if (until > Clock::now()) {
    changed_.wait_until(lock, until, ready);
  }
  woken_ = false;
  return items_.size();
}

DISTGRAD_DECL LoopbackItem* LoopbackInbox::take() {
  std::lock_guard lock(mutex_);
  if (items_.empty() || shut_) return nullptr;
  std::lock_guard copying(copying_);
  taken_ = std::move(items_.front());
  items_.pop_front();
  return &taken_;
}

DISTGRAD_DECL std::shared_ptr<LoopbackInbox> LoopbackInbox::empty_taken(
    std::vector<Buffer> const* landing) {
  std::lock_guard copying(copying_);
  if (landing) copy_buffers(taken_.message.buffers, *landing);
  taken_.message.buffers.clear();
  return std::move(taken_.sender);
}

DISTGRAD_DECL std::vector<std::uint64_t> LoopbackInbox::lengths_of_taken() {
  std::lock_guard copying(copying_);
  return buffer_lengths(taken_.message.buffers);
}

DISTGRAD_DECL void LoopbackInbox::wake() noexcept {
  {
    std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_one();
  bell_.ring();
}

DISTGRAD_DECL std::deque<LoopbackItem> LoopbackInbox::shut(error_code why) {
  std::deque<LoopbackItem> rest;
  {
    std::lock_guard lock(mutex_);
    if (!shut_) shut_ = why;
    rest.swap(items_);
  }
  changed_.notify_all();
  bell_.ring();
  return rest;
}

/// Makes buffers independent of the memory they refer to.
inline void own_copies(std::vector<Buffer>& buffers) {
  for (auto& buffer : buffers) {
    auto copy = std::make_shared<std::vector<std::byte>>(buffer.data(),
                                                         buffer.data() + buffer.size_bytes());
    buffer = Buffer(copy, copy->data(), copy->size());
  }
}

/// A payload up to this size is copied when it is sent: that costs less than to wake the sender
/// once the receiver has copied it.
inline constexpr std::size_t loopback_copied_bytes = 4096;

DISTGRAD_DECL void LoopbackInbox::detach(LoopbackInbox const* sender) {
  auto const detach_item = [sender](LoopbackItem& item) {
    if (item.sender.get() != sender) return;
    own_copies(item.message.buffers);
    item.sender = nullptr;
  };
  std::lock_guard lock(mutex_);
  for (auto& item : items_) detach_item(item);
  std::lock_guard copying(copying_);
  detach_item(taken_);
}

}  // namespace detail

DISTGRAD_DECL std::uint64_t LoopbackHub::add(std::shared_ptr<detail::LoopbackInbox> inbox) {
  std::lock_guard lock(mutex_);
  std::erase_if(inboxes_, [](auto const& entry) { return entry.second.expired(); });
  inboxes_.emplace(++last_, inbox);
  return last_;
}

DISTGRAD_DECL std::shared_ptr<detail::LoopbackInbox> LoopbackHub::find(
    std::string const& endpoint) {
  constexpr std::string_view prefix = "loopback:";
  if (!endpoint.starts_with(prefix)) return nullptr;
  auto const number = std::strtoull(endpoint.c_str() + prefix.size(), nullptr, 10);
  std::lock_guard lock(mutex_);
  auto const found = inboxes_.find(number);
  return found == inboxes_.end() ? nullptr : found->second.lock();
}

DISTGRAD_DECL LoopbackTransport::LoopbackTransport(Options options)
    : hub_(options.hub ? std::move(options.hub) : std::make_shared<LoopbackHub>()),
      inbox_(std::make_shared<Inbox>()),
      endpoint_("loopback:" + std::to_string(hub_->add(inbox_))) {}

DISTGRAD_DECL LoopbackTransport::~LoopbackTransport() { close(); }

DISTGRAD_DECL void LoopbackTransport::start(TransportSetup setup) {
  detail::check_membership(setup);
  setup_ = std::move(setup);
  for (auto const& peer : setup_.group) peers_.push_back(hub_->find(peer.endpoint));
  peers_[setup_.self.value] = inbox_;
  started_ = true;
}

DISTGRAD_DECL void LoopbackTransport::async_send(WorkerId to, Message message,
                                                 SendCompletion done) {
  bool const is_big = message.header().payload_bytes > detail::loopback_copied_bytes;
  if (!is_big) detail::own_copies(message.buffers);
  // A message is complete once it lies in the peer's inbox. But a big one refers to the sender's
  // memory until the receiver has copied it.
  auto const token = is_big ? remember(std::move(done)) : 0;
  auto const failed = hand_over(to, std::move(message), token);
  if (!is_big) {
    if (done) done(failed);
  } else if (failed) {
    complete(token, failed);
  }
}

DISTGRAD_DECL error_code LoopbackTransport::hand_over(WorkerId to, Message message,
                                                      std::uint64_t token) {
  if (!started_ || closed_) return errc::closed;
  if (to.value >= peers_.size()) return errc::unknown_worker;
  if (auto bad = detail::check_outgoing(message.header(), setup_.limits)) return bad;
  auto const& peer = peers_[to.value];
  if (!peer) return errc::unreachable;
  auto sender = token ? inbox_ : nullptr;
  Item item{Item::What::message, setup_.self, std::move(message), std::move(sender), token, {}};
  return peer->push(std::move(item));
}

DISTGRAD_DECL std::size_t LoopbackTransport::run_until(time_point until, std::size_t limit) {
  auto const there = inbox_->wait(until);
  std::size_t handled = 0;
  while (handled < std::min(there, limit)) {
    auto* item = inbox_->take();
    if (!item) break;
    ++handled;
    handle(*item);
  }
  if (handled < there) inbox_->ring();
  return handled;
}

DISTGRAD_DECL void LoopbackTransport::handle(Item& item) {
  switch (item.what) {
    case Item::What::message: return deliver(item);
    case Item::What::taken: return complete(item.token, item.result);
    case Item::What::left: return setup_.sink->on_peer_lost(item.from, errc::closed);
    case Item::What::lost: return setup_.sink->on_peer_lost(item.from, errc::peer_lost);
  }
}

DISTGRAD_DECL void LoopbackTransport::deliver(Item& item) {
  std::vector<Buffer> landing;
  bool accepted = true;
  if (auto const lengths = inbox_->lengths_of_taken(); !lengths.empty()) {
    FrameHeader header{
        item.message.kind, item.message.flags,           static_cast<std::uint32_t>(lengths.size()),
        item.message.call, item.message.metadata.size(), 0};
    for (auto length : lengths) header.payload_bytes += length;
    landing = setup_.sink->landing(header, item.message.metadata, lengths);
    accepted = detail::fit_landing(landing, lengths);
    if (auto sender = inbox_->empty_taken(accepted ? &landing : nullptr)) {
      sender->push({Item::What::taken, setup_.self, {}, nullptr, item.token, {}});
    }
  }
  if (!accepted || closed_) return;
  item.message.buffers = std::move(landing);
  setup_.sink->on_message(item.from, std::move(item.message));
}

DISTGRAD_DECL std::vector<pollfd> LoopbackTransport::native_handles() {
  return {{inbox_->descriptor(), POLLIN, 0}};
}

DISTGRAD_DECL void LoopbackTransport::wake() noexcept { inbox_->wake(); }

DISTGRAD_DECL void LoopbackTransport::close() noexcept { end(Item::What::left, errc::closed); }

DISTGRAD_DECL void LoopbackTransport::abandon() noexcept { end(Item::What::lost, errc::peer_lost); }

DISTGRAD_DECL void LoopbackTransport::end(Item::What farewell, error_code why) noexcept {
  if (closed_.exchange(true)) return;
  for (auto& item : inbox_->shut(why)) {
    if (item.what == Item::What::taken) {
      complete(item.token, item.result);
    } else if (item.sender == inbox_) {
      complete(item.token, why);
    } else if (item.sender) {
      item.sender->push({Item::What::taken, setup_.self, {}, nullptr, item.token, why});
    }
  }
  for (auto const& peer : peers_) {
    if (!peer || peer == inbox_) continue;
    peer->detach(inbox_.get());
    peer->push({farewell, setup_.self, {}, nullptr, 0, {}});
  }
  std::unordered_map<std::uint64_t, SendCompletion> waiting;
  {
    std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
  }
  // What still lies in a peer's inbox will arrive.
  for (auto& entry : waiting) {
    if (entry.second) entry.second(error_code());
  }
}

DISTGRAD_DECL void LoopbackTransport::complete(std::uint64_t token, error_code result) {
  if (auto done = forget(token)) done(result);
}

DISTGRAD_DECL std::uint64_t LoopbackTransport::remember(SendCompletion done) {
  std::lock_guard lock(mutex_);
  waiting_.emplace(++last_token_, std::move(done));
  return last_token_;
}

DISTGRAD_DECL SendCompletion LoopbackTransport::forget(std::uint64_t token) {
  std::lock_guard lock(mutex_);
  auto const found = waiting_.find(token);
  if (found == waiting_.end()) return nullptr;
  auto done = std::move(found->second);
  waiting_.erase(found);
  return done;
}

}  // namespace distgrad
