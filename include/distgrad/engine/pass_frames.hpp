#pragma once
#include <set>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/engine/pass_protocol.hpp>
#include <distgrad/rpc/host.hpp>
#include <distgrad/tensor/compat.hpp>
#include <distgrad/wire/message.hpp>

namespace distgrad::detail {

/// A gradient message, read. All frames of a pass begin with its id.
struct GradientFrame {
  AutogradMessageId message;
  bool retain_graph = false;
  bool create_graph = false;
  /// One per tensor of the message; undefined ones did not travel.
  variable_list gradients;
};

/// Pass id | message id | flags u8 | count u32 | one bit per gradient: is it defined | tensor table
/// of the defined ones.
Message gradient_message(Host& host, PassId const& pass, AutogradMessageId message,
                         bool retain_graph, bool create_graph, variable_list const& gradients);
/// @param in after the pass id. @throws Error `bad_value`.
GradientFrame read_gradient(Host& host, Reader& in, std::span<Buffer const> buffers);

void write_status(Writer& out, PassStatus const& status);
/// @throws Error `bad_value`.
PassStatus read_status(Reader& in);

}  // namespace distgrad::detail

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/pass_frames.ipp>
#endif
