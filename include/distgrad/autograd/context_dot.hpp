#pragma once
#include <string>
#include <vector>

#include <distgrad/autograd/context_graph.hpp>
#include <distgrad/config.hpp>

namespace distgrad {

/// One worker's part of a context's graph, with that worker's name.
struct ContextPart {
  std::string worker;
  ContextGraph graph;
};

/// Draws parts of one context in the DOT language, arrows in the direction of gradients: a box for
/// each worker, and between them a dashed arrow for each message, from its recv function to its
/// send function. The other end of a message to a worker that is not among the parts is drawn
/// outside of all boxes.
///
///     std::ofstream("context.dot") << to_dot({{"worker0", graph0}, {"worker1", graph1}});
///     // dot -Tsvg context.dot > context.svg
///
/// @source https://graphviz.org/doc/info/lang.html
DISTGRAD_DECL std::string to_dot(std::vector<ContextPart> const& parts);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/autograd/impl/context_dot.ipp>
#endif
