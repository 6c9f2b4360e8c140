#pragma once
#include <string>

#include <distgrad/config.hpp>
#include <distgrad/tensor/compat.hpp>

namespace distgrad {

/// Makes `gradients` fit the inputs that `edges` lead to, as libtorch does between two nodes: sums
/// over broadcast dimensions, casts the dtype, moves a 0-dim tensor to the input's device. Invalid
/// edges and undefined gradients are passed over.
/// @return what cannot be made to fit; empty when all is well.
[[nodiscard]] DISTGRAD_DECL std::string fit_to_edges(torch::autograd::edge_list const& edges,
                                                     variable_list& gradients);

/// The same for the inputs of one node, for gradients that come from outside the graph.
[[nodiscard]] DISTGRAD_DECL std::string fit_to_inputs(Node const& node, variable_list& gradients);

/// Calls a node with all its hooks.
/// @param retain_graph otherwise the node gives up what it saved for backward.
/// @return one gradient, maybe undefined, per next edge, fitted to it.
/// @throws Error `errc::pass_failed` if the outputs do not fit the next nodes; whatever the node
/// or a hook throws.
DISTGRAD_DECL variable_list call_node(Node& node, variable_list&& inputs, bool retain_graph);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/node_call.ipp>
#endif
