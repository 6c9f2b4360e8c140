#pragma once
#include <set>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/engine/discovery_protocol.hpp>
#include <distgrad/engine/executor.hpp>
#include <distgrad/engine/pass_options.hpp>
#include <distgrad/engine/pass_status.hpp>
#include <distgrad/rpc/host.hpp>
#include <distgrad/tensor/compat.hpp>
#include <distgrad/wire/message.hpp>

// All frames of a pass begin with its id. The readers here begin after it; what they throw on
// malformed frames is `Error` with `bad_value`.
namespace distgrad::detail {

/// A gradient message, read.
struct GradientFrame {
  PassOptions options;
  AutogradMessageId message;
  /// With `create_graph`, when gradients have a graph: the id under which its sender recorded them.
  AutogradMessageId recorded;
  /// One per tensor of the message; undefined ones did not travel.
  variable_list gradients;
  Lives lives;
  /// Which of them belong to the sender's graph.
  std::vector<bool> is_recorded;

  std::vector<at::Tensor> differentiable() const;
};

/// Pass id | options u8 | message id | recorded id | count u32 | one bit per gradient: is it
/// defined | one more: does it live | tensor table of the defined ones.
Message gradient_message(Host& host, PassId const& pass, PassOptions options,
                         AutogradMessageId message, AutogradMessageId recorded,
                         variable_list const& gradients, Lives const& lives);
GradientFrame read_gradient(Host& host, Reader& in, std::span<Buffer const> buffers);

/// Brings gradients of `send` to the devices where the tensors were when they were sent.
void bring_back(Host& host, Node const& send, variable_list& gradients);

/// Pass id | options u8 | the outermost pass's id, if this one is nested | number u32 | count u64 |
/// message ids.
struct DiscoverFrame {
  PassOptions options;
  PassId outermost = {};
  std::uint32_t number = 0;
  std::vector<AutogradMessageId> messages;
};

Message discover_message(PassId const& pass, PassOptions options,
                         DiscoveryActions::Discover const& discover, PassId const& outermost = {});
DiscoverFrame read_discover(Reader& in);

struct DiscoveredFrame {
  std::uint32_t number = 0;
  std::set<WorkerId> participants;
};

Message discovered_message(PassId const& pass, DiscoveryActions::Discovered const& discovered);
DiscoveredFrame read_discovered(Reader& in);

void write_status(Writer& out, PassStatus const& status);
PassStatus read_status(Reader& in);

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/pass_frames.ipp>
#endif
