#pragma once
#include <distgrad/engine/pass_frames.hpp>

namespace distgrad::detail {

DISTGRAD_DECL Message gradient_message(Host& host, PassId const& pass, AutogradMessageId message,
                                       bool retain_graph, bool create_graph,
                                       variable_list const& gradients) {
  Writer out;
  out.id(pass);
  out.id(message);
  out.number(static_cast<std::uint8_t>(retain_graph | (create_graph << 1)));
  out.number(static_cast<std::uint32_t>(gradients.size()));
  std::vector<at::Tensor> defined;
  for (std::size_t i = 0; i < gradients.size(); i += 8) {
    std::uint8_t bits = 0;
    for (std::size_t j = i; j < gradients.size() && j < i + 8; ++j) {
      if (!gradients[j].defined()) continue;
      bits |= std::uint8_t(1u << (j - i));
      defined.push_back(gradients[j]);
    }
    out.number(bits);
  }
  Message frame{.kind = FrameKind::gradient};
  host.pack(out, frame.buffers, defined);
  frame.metadata = out.take();
  return frame;
}

DISTGRAD_DECL GradientFrame read_gradient(Host& host, Reader& in,
                                          std::span<Buffer const> buffers) {
  GradientFrame frame;
  frame.message = in.id<AutogradMessageId>();
  auto const flags = in.number<std::uint8_t>();
  frame.retain_graph = flags & 1;
  frame.create_graph = flags & 2;
  std::size_t const count = in.number<std::uint32_t>();
  auto const bits = in.raw((count + 7) / 8);
  if (!in.ok()) throw Error(errc::bad_value, "a gradient message is cut off");
  auto received = host.unpack(in, buffers);
  frame.gradients.resize(count);
  std::size_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!(std::to_integer<unsigned>(bits[i / 8]) >> (i % 8) & 1)) continue;
    if (next < received.tensors.size()) frame.gradients[i] = std::move(received.tensors[next]);
    ++next;
  }
  if (!in.ok() || next != received.tensors.size()) {
    throw Error(errc::bad_value, "a gradient message has another number of tensors than it says");
  }
  return frame;
}

DISTGRAD_DECL void write_status(Writer& out, PassStatus const& status) {
  out.number(status.round);
  out.number(status.is_idle);
  out.number(status.sent);
  out.number(status.received);
  out.number(std::uint64_t{status.peers.size()});
  for (auto const peer : status.peers) out.id(peer);
  out.number(std::uint64_t{status.awaited.size()});
  for (auto const& send : status.awaited) {
    out.id(send.message);
    out.id(send.from);
  }
}

DISTGRAD_DECL PassStatus read_status(Reader& in) {
  PassStatus status;
  status.round = in.number<std::uint32_t>();
  status.is_idle = in.number<bool>();
  status.sent = in.number<std::uint64_t>();
  status.received = in.number<std::uint64_t>();
  for (auto n = in.count(sizeof(std::uint32_t)); n > 0; --n) status.peers.insert(in.id<WorkerId>());
  constexpr std::size_t send_bytes = 20;
  for (auto n = in.count(send_bytes); n > 0; --n) {
    auto const message = in.id<AutogradMessageId>();
    status.awaited.push_back({message, in.id<WorkerId>()});
  }
  if (!in.ok() || !in.at_end()) throw Error(errc::bad_value, "a status of a pass is malformed");
  return status;
}

}  // namespace distgrad::detail
