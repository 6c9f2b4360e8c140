// What does a hop cost the backward pass alone? Chains over two and four workers of one process, in
// every mode, on the loopback transport and on TCP, beside local autograd of the same graph.
#pragma once

#include "../support/report.hpp"

namespace bench {

/// Measures and prints all rows.
/// @throws distgrad::Error when a pass fails, std::runtime_error when a gradient is wrong.
void run_hop_rows(bool quick, Targets& targets);

}  // namespace bench
