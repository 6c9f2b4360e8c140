#pragma once
/// Distributed autograd in plain C++: every room of the library, and the engines most programs use.

#include <distgrad/engine/checkpoint.hpp>
#include <distgrad/engine/engines.hpp>
#include <distgrad/engine/local_cluster.hpp>
#include <distgrad/optim/distributed_optimizer.hpp>
#include <distgrad/queue/inline_queues.hpp>
#include <distgrad/version.hpp>
