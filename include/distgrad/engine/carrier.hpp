#pragma once
#include <distgrad/config.hpp>
#include <distgrad/core/unique_function.hpp>

namespace distgrad {

/// Runs `work` on the calling thread inside a backward pass of libtorch's own engine that has no
/// other content.
///
/// A graph that is walked by hand needs this in three cases. Generated nodes ask the pass of the
/// calling thread which of their gradients are needed: below a stock `grad(inputs)` they would
/// silently skip some. `Engine::queue_callback` wants a pass to be called back from. And a
/// `backward()` called by a node becomes a proper nested pass.
/// @param retain_graph what nodes see that ask whether the graph is kept.
/// @param create_graph also the grad mode in which `work` runs.
/// @throws whatever `work` throws, unchanged.
/// @cost 3 µs.
DISTGRAD_DECL void run_in_carrier(bool retain_graph, bool create_graph,
                                  unique_function<void()> work);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/carrier.ipp>
#endif
