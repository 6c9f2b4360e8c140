#pragma once
#include <algorithm>
#include <iterator>

#include <distgrad/autograd/recorder.hpp>
#include <distgrad/engine/pass_frames.hpp>

namespace distgrad::detail {

inline constexpr std::size_t worker_bytes = 4, message_bytes = 16;

inline void write_workers(Writer& out, std::set<WorkerId> const& workers) {
  out.number(std::uint64_t{workers.size()});
  for (auto const worker : workers) out.id(worker);
}

inline std::set<WorkerId> read_workers(Reader& in) {
  std::set<WorkerId> workers;
  for (auto n = in.count(worker_bytes); n > 0; --n) workers.insert(in.id<WorkerId>());
  return workers;
}

inline void require_read(Reader const& in, char const* what) {
  if (!in.ok() || !in.at_end()) throw Error(errc::bad_value, std::string(what) + " is malformed");
}

/// One bit per item, the first in the lowest.
template <class Test>
void write_bits(Writer& out, std::size_t count, Test is_set) {
  for (std::size_t i = 0; i < count; i += 8) {
    std::uint8_t bits = 0;
    for (std::size_t j = i; j < count && j < i + 8; ++j) bits |= std::uint8_t(is_set(j) << (j - i));
    out.number(bits);
  }
}

inline std::vector<bool> read_bits(Reader& in, std::size_t count) {
  auto const bytes = in.raw((count + 7) / 8);
  std::vector<bool> bits(in.ok() ? count : 0);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = std::to_integer<unsigned>(bytes[i / 8]) >> (i % 8) & 1;
  }
  return bits;
}

// --- gradients -----------------------------------------------------------------------------------

DISTGRAD_DECL Message gradient_message(Host& host, PassId const& pass, PassOptions options,
                                       AutogradMessageId message, AutogradMessageId recorded,
                                       variable_list const& gradients, Lives const& lives) {
  Writer out;
  out.id(pass);
  out.number(options.bits());
  out.id(message);
  out.id(recorded);
  out.number(static_cast<std::uint32_t>(gradients.size()));
  std::vector<at::Tensor> defined;
  std::ranges::copy_if(gradients, std::back_inserter(defined), &at::Tensor::defined);
  write_bits(out, gradients.size(), [&](std::size_t i) { return gradients[i].defined(); });
  write_bits(out, gradients.size(), [&](std::size_t i) { return lives[i]; });
  Message frame{.kind = FrameKind::gradient};
  if (std::ranges::any_of(defined, &is_on_device)) frame.flags |= device_flag;
  host.pack(out, frame.buffers, defined);
  frame.metadata = out.take();
  return frame;
}

DISTGRAD_DECL std::vector<at::Tensor> GradientFrame::differentiable() const {
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (is_recorded[i]) tensors.push_back(gradients[i]);
  }
  return tensors;
}

DISTGRAD_DECL GradientFrame read_gradient(Host& host, Reader& in, std::span<Buffer const> buffers) {
  GradientFrame frame;
  frame.options = PassOptions::from_bits(in.number<std::uint8_t>());
  frame.message = in.id<AutogradMessageId>();
  frame.recorded = in.id<AutogradMessageId>();
  std::size_t const count = in.number<std::uint32_t>();
  auto const is_defined = read_bits(in, count);
  frame.lives = read_bits(in, count);
  if (!in.ok()) throw Error(errc::bad_value, "a gradient message is cut off");
  auto received = host.unpack(in, buffers);
  if (frame.recorded.is_valid()) differentiable(received);  // throws where a gradient cannot be
  frame.gradients.resize(count);
  frame.is_recorded.resize(count);
  std::size_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_defined[i]) continue;
    if (!frame.lives[i]) throw Error(errc::bad_value, "a gradient came that leads nowhere");
    if (next < received.tensors.size()) {
      frame.gradients[i] = std::move(received.tensors[next]);
      frame.is_recorded[i] = frame.recorded.is_valid() && received.requires_grad[next];
    }
    ++next;
  }
  if (!in.ok() || next != received.tensors.size()) {
    throw Error(errc::bad_value, "a gradient message has another number of tensors than it says");
  }
  return frame;
}

DISTGRAD_DECL void bring_back(Host& host, Node const& send, variable_list& gradients) {
  if (node_device(send).is_cpu()) return;
  std::vector<c10::Device> devices(gradients.size(), c10::kCPU);
  auto const known = std::min<std::size_t>(gradients.size(), send.num_inputs());
  for (std::uint32_t i = 0; i < known; ++i) devices[i] = send.input_metadata(i).device();
  host.place(gradients, devices);
}

// --- discovery -----------------------------------------------------------------------------------

DISTGRAD_DECL Message discover_message(PassId const& pass, PassOptions options,
                                       DiscoveryActions::Discover const& discover,
                                       PassId const& outermost) {
  Writer out;
  out.id(pass);
  out.number(options.bits());
  if (options.is_nested) out.id(outermost);
  out.number(discover.number);
  out.number(std::uint64_t{discover.messages.size()});
  for (auto const& message : discover.messages) out.id(message);
  return {.kind = FrameKind::pass_discover, .metadata = out.take()};
}

DISTGRAD_DECL DiscoverFrame read_discover(Reader& in) {
  DiscoverFrame frame;
  frame.options = PassOptions::from_bits(in.number<std::uint8_t>());
  if (frame.options.is_nested) frame.outermost = in.id<PassId>();
  frame.number = in.number<std::uint32_t>();
  frame.messages.resize(in.count(message_bytes));
  for (auto& message : frame.messages) message = in.id<AutogradMessageId>();
  require_read(in, "a question of a pass");
  return frame;
}

DISTGRAD_DECL Message discovered_message(PassId const& pass,
                                         DiscoveryActions::Discovered const& discovered) {
  Writer out;
  out.id(pass);
  out.number(discovered.number);
  write_workers(out, discovered.participants);
  return {.kind = FrameKind::pass_discovered, .metadata = out.take()};
}

DISTGRAD_DECL DiscoveredFrame read_discovered(Reader& in) {
  DiscoveredFrame frame;
  frame.number = in.number<std::uint32_t>();
  frame.participants = read_workers(in);
  require_read(in, "an answer of a pass");
  return frame;
}

// --- status --------------------------------------------------------------------------------------

DISTGRAD_DECL void write_status(Writer& out, PassStatus const& status) {
  out.number(status.round);
  out.number(status.is_idle);
  out.number(status.sent);
  out.number(status.received);
  write_workers(out, status.peers);
  out.number(std::uint64_t{status.awaited.size()});
  for (auto const& send : status.awaited) {
    out.id(send.message);
    out.id(send.from);
  }
  out.text(status.node);
}

DISTGRAD_DECL PassStatus read_status(Reader& in) {
  PassStatus status;
  status.round = in.number<std::uint32_t>();
  status.is_idle = in.number<bool>();
  status.sent = in.number<std::uint64_t>();
  status.received = in.number<std::uint64_t>();
  status.peers = read_workers(in);
  for (auto n = in.count(message_bytes + worker_bytes); n > 0; --n) {
    auto const message = in.id<AutogradMessageId>();
    status.awaited.push_back({message, in.id<WorkerId>()});
  }
  status.node = in.text();
  require_read(in, "a status of a pass");
  return status;
}

}  // namespace distgrad::detail
