#pragma once
// Read only by src.hpp: a header-only program instantiates what it uses.
#include <distgrad/engine/engines.hpp>

namespace distgrad {

template class PolicyHost<TcpTransport, CpuQueues, TensorSerializer>;
template class PolicyHost<LoopbackTransport, CpuQueues, TensorSerializer>;
template class DistEngine<TcpTransport, CpuQueues>;
template class DistEngine<LoopbackTransport, CpuQueues>;

}  // namespace distgrad
