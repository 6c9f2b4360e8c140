#pragma once
#include <distgrad/transport/detail/frame_assembler.hpp>
#include <distgrad/transport/detail/outgoing_check.hpp>
#include <distgrad/transport/detail/outgoing_frame.hpp>

namespace distgrad {

/// What a transport over a stream of bytes need not write again; without I/O, so that any API that
/// takes `iovec` fits. `check_outgoing` says why a message cannot be sent, `OutgoingFrame` lists
/// the memory that is still to be written, `FrameAssembler` says where the next bytes shall land,
/// and tells its `AssemblerSink` what came. Example: examples/plugin/unix_transport.hpp.
using detail::AssemblerSink;
using detail::check_outgoing;
using detail::FrameAssembler;
using detail::OutgoingFrame;

}  // namespace distgrad
