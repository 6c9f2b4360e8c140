#pragma once
/// Distributed autograd in plain C++: every room of the library, and the engines most programs use.

#include <distgrad/engine/checkpoint.hpp>
#include <distgrad/engine/dist_engine.hpp>
#include <distgrad/engine/local_cluster.hpp>
#include <distgrad/optim/distributed_optimizer.hpp>
#include <distgrad/queue/cpu_queues.hpp>
#include <distgrad/queue/inline_queues.hpp>
#include <distgrad/serialize/serializer.hpp>
#include <distgrad/transport/loopback_transport.hpp>
#include <distgrad/transport/tcp_transport.hpp>
#include <distgrad/version.hpp>

namespace distgrad {

/// Workers in processes that reach each other over TCP, computing on CPUs.
using TcpEngine = DistEngine<TcpTransport, CpuQueues>;
/// Workers of one process.
using LoopbackEngine = DistEngine<LoopbackTransport, CpuQueues>;

}  // namespace distgrad
