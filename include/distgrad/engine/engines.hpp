#pragma once
#include <distgrad/config.hpp>
#include <distgrad/engine/dist_engine.hpp>
#include <distgrad/queue/cpu_queues.hpp>
#include <distgrad/transport/loopback_transport.hpp>
#include <distgrad/transport/tcp_transport.hpp>

namespace distgrad {

/// Workers in processes that reach each other over TCP, computing on CPUs.
using TcpEngine = DistEngine<TcpTransport, CpuQueues>;
/// Workers of one process.
using LoopbackEngine = DistEngine<LoopbackTransport, CpuQueues>;

DISTGRAD_EXTERN_TEMPLATE(class PolicyHost<TcpTransport, CpuQueues, TensorSerializer>);
DISTGRAD_EXTERN_TEMPLATE(class PolicyHost<LoopbackTransport, CpuQueues, TensorSerializer>);
DISTGRAD_EXTERN_TEMPLATE(class DistEngine<TcpTransport, CpuQueues>);
DISTGRAD_EXTERN_TEMPLATE(class DistEngine<LoopbackTransport, CpuQueues>);

}  // namespace distgrad
