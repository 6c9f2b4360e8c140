#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <distgrad/autograd/dist_autograd_context.hpp>
#include <distgrad/config.hpp>
#include <distgrad/core/ids.hpp>

namespace distgrad {

/// One worker's part of the graph of a context, as a drawing needs it: what its send functions lead
/// to, and its recv functions. A send function of one worker belongs to the recv function with the
/// same message on another; a recv function that nothing leads to is where roots begin.
struct ContextGraph {
  enum class Kind : std::uint8_t { send, recv, leaf, function };
  struct Vertex {
    Kind kind{};
    /// That of the node; of a leaf its sizes, as "[3, 2]".
    std::string name;
    /// Of a send or recv function: the message, and who is at its other end.
    AutogradMessageId message;
    WorkerId peer;
  };
  struct Arrow {
    std::size_t from = 0, to = 0;
    friend bool operator==(Arrow const&, Arrow const&) = default;
  };

  ContextId context;
  std::vector<Vertex> vertices;
  /// From a node to where its gradients go: indices of `vertices`.
  std::vector<Arrow> arrows;
  /// Whether there was more than `max_vertices`.
  bool is_cut = false;
};

/// Walks the graph of `context`, breadth first, until `max_vertices` are found. Needs no backward
/// pass, and does not disturb one that runs.
DISTGRAD_DECL ContextGraph describe_graph(DistAutogradContext const& context,
                                          std::size_t max_vertices = 400);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/autograd/impl/context_graph.ipp>
#endif
