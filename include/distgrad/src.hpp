#pragma once
/// Defines what the headers only declare under DISTGRAD_SEPARATE_COMPILATION. Include it in exactly
/// one source file of such a program.

#ifndef DISTGRAD_SEPARATE_COMPILATION
#error "src.hpp is for programs built with DISTGRAD_SEPARATE_COMPILATION"
#endif

#include <distgrad/core/impl/error.ipp>
#include <distgrad/core/impl/exception.ipp>
#include <distgrad/core/impl/future.ipp>
#include <distgrad/wire/impl/frame.ipp>
#include <distgrad/observe/impl/chrome_trace.ipp>
#include <distgrad/observe/impl/log.ipp>
#include <distgrad/observe/impl/prometheus.ipp>
#include <distgrad/transport/impl/frame_assembler.ipp>
#include <distgrad/transport/impl/handshake_channel.ipp>
#include <distgrad/transport/impl/io_loop.ipp>
#include <distgrad/transport/impl/loopback_transport.ipp>
#include <distgrad/transport/impl/outgoing_frame.ipp>
#include <distgrad/transport/impl/peer.ipp>
#include <distgrad/transport/impl/serial_link.ipp>
#include <distgrad/transport/impl/serial_peer.ipp>
#include <distgrad/transport/impl/serial_transport.ipp>
#include <distgrad/transport/impl/socket_transport.ipp>
#include <distgrad/transport/impl/tcp_connector.ipp>
#include <distgrad/transport/impl/tcp_listener.ipp>
#include <distgrad/transport/impl/tcp_peer.ipp>
#include <distgrad/transport/impl/tcp_transport.ipp>
#include <distgrad/rendezvous/impl/environment.ipp>
#include <distgrad/rendezvous/impl/local_rendezvous.ipp>
#include <distgrad/rendezvous/impl/registration_table.ipp>
#include <distgrad/rendezvous/impl/rendezvous_guest.ipp>
#include <distgrad/rendezvous/impl/rendezvous_host.ipp>
#include <distgrad/rendezvous/impl/tcp_rendezvous.ipp>
#include <distgrad/queue/impl/cpu_queues.ipp>
#include <distgrad/queue/impl/device_queues.ipp>
#include <distgrad/queue/impl/inline_queues.ipp>
#include <distgrad/tensor/impl/device_map.ipp>
#include <distgrad/tensor/impl/device_staging.ipp>
#include <distgrad/tensor/impl/tensor_buffer.ipp>
#include <distgrad/tensor/impl/tensor_meta.ipp>
#include <distgrad/serialize/impl/serializer.ipp>
#include <distgrad/rpc/impl/agent.ipp>
#include <distgrad/rpc/impl/caller.ipp>
#include <distgrad/rpc/impl/dispatcher.ipp>
#include <distgrad/rpc/impl/draft.ipp>
#include <distgrad/rpc/impl/function.ipp>
#include <distgrad/rpc/impl/function_name.ipp>
#include <distgrad/rpc/impl/membership.ipp>
#include <distgrad/rpc/impl/registry.ipp>
#include <distgrad/rpc/impl/shutdown_barrier.ipp>
#include <distgrad/raw/impl/raw_agent.ipp>
#include <distgrad/raw/impl/raw_message.ipp>
#include <distgrad/rref/impl/control_channel.ipp>
#include <distgrad/rref/impl/fork_protocol.ipp>
#include <distgrad/rref/impl/fork_protocol_state.ipp>
#include <distgrad/rref/impl/rref.ipp>
#include <distgrad/rref/impl/rref_table.ipp>
#include <distgrad/rref/impl/rref_table_owner.ipp>
#include <distgrad/autograd/impl/context_dot.ipp>
#include <distgrad/autograd/impl/context_graph.ipp>
#include <distgrad/autograd/impl/context_table.ipp>
#include <distgrad/autograd/impl/dist_autograd_context.ipp>
#include <distgrad/autograd/impl/gradient_map.ipp>
#include <distgrad/autograd/impl/recorder.ipp>
#include <distgrad/autograd/impl/recv_rpc_backward.ipp>
#include <distgrad/autograd/impl/send_rpc_backward.ipp>
#include <distgrad/engine/impl/carrier.ipp>
#include <distgrad/engine/impl/checkpoint.ipp>
#include <distgrad/engine/impl/context.ipp>
#include <distgrad/engine/impl/dist_engine.ipp>
#include <distgrad/engine/impl/discovery_protocol.ipp>
#include <distgrad/engine/impl/engine_core.ipp>
#include <distgrad/engine/impl/executor.ipp>
#include <distgrad/engine/impl/executor_discovery.ipp>
#include <distgrad/engine/impl/input_buffer.ipp>
#include <distgrad/engine/impl/node_call.ipp>
#include <distgrad/engine/impl/pass.ipp>
#include <distgrad/engine/impl/pass_end.ipp>
#include <distgrad/engine/impl/pass_frames.ipp>
#include <distgrad/engine/impl/pass_messages.ipp>
#include <distgrad/engine/impl/pass_protocol.ipp>
#include <distgrad/engine/impl/pass_table.ipp>
#include <distgrad/engine/impl/standstill_detector.ipp>
#include <distgrad/engine/impl/trace_file.ipp>
#include <distgrad/engine/impl/worker.ipp>
#include <distgrad/optim/impl/distributed_optimizer.ipp>
#include <distgrad/optim/impl/local_optimizer.ipp>

#include <distgrad/engine/engines.hpp>

template class distgrad::PolicyHost<distgrad::TcpTransport, distgrad::CpuQueues,
                                    distgrad::TensorSerializer>;
template class distgrad::PolicyHost<distgrad::LoopbackTransport, distgrad::CpuQueues,
                                    distgrad::TensorSerializer>;
template class distgrad::DistEngine<distgrad::TcpTransport, distgrad::CpuQueues>;
template class distgrad::DistEngine<distgrad::LoopbackTransport, distgrad::CpuQueues>;
