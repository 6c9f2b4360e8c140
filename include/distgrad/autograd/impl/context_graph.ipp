#pragma once
#include <algorithm>
#include <unordered_map>

#include <distgrad/autograd/context_graph.hpp>

namespace distgrad {
namespace detail {

inline std::string sizes_text(at::Tensor const& tensor) {
  std::string text = "[";
  for (auto const size : tensor.sizes()) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  }
  return text + "]";
}

inline ContextGraph::Vertex vertex_of(Node& node) {
  using Kind = ContextGraph::Kind;
  if (auto const* send = dynamic_cast<SendRpcBackward const*>(&node)) {
    return {Kind::send, node.name(), send->id(), send->to()};
  }
  if (auto const* recv = dynamic_cast<RecvRpcBackward const*>(&node)) {
    return {Kind::recv, node.name(), recv->id(), recv->from()};
  }
  if (auto const* leaf = as_leaf(node)) return {Kind::leaf, sizes_text(leaf->variable), {}, {}};
  return {Kind::function, node.name(), {}, {}};
}

class GraphWalk {
 public:
  GraphWalk(ContextId context, std::size_t max_vertices) : max_vertices_(max_vertices) {
    graph_.context = context;
  }

  ContextGraph run(std::vector<node_ptr> const& roots) {
    for (auto const& root : roots) visit(*root);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (auto const& edge : nodes_[i]->next_edges()) {
        if (!edge.function) continue;
        if (auto const to = visit(*edge.function); to != none) add_arrow(i, to);
      }
    }
    return std::move(graph_);
  }

 private:
  static constexpr auto none = ~std::size_t{0};

  /// @return its index, or `none` if there is no room for it.
  std::size_t visit(Node& node) {
    if (auto const known = index_.find(&node); known != index_.end()) return known->second;
    if (nodes_.size() == max_vertices_) {
      graph_.is_cut = true;
      return none;
    }
    graph_.vertices.push_back(vertex_of(node));
    nodes_.push_back(&node);
    return index_[&node] = nodes_.size() - 1;
  }
  void add_arrow(std::size_t from, std::size_t to) {
    ContextGraph::Arrow const arrow{from, to};
    if (std::ranges::find(graph_.arrows, arrow) == graph_.arrows.end()) {
      graph_.arrows.push_back(arrow);
    }
  }

  std::size_t max_vertices_;
  ContextGraph graph_;
  std::vector<Node*> nodes_;  // the context holds what leads to them
  std::unordered_map<Node const*, std::size_t> index_;
};

}  // namespace detail

DISTGRAD_DECL ContextGraph describe_graph(DistAutogradContext const& context,
                                          std::size_t max_vertices) {
  auto roots = context.sends();
  auto const recvs = context.recvs();
  roots.insert(roots.end(), recvs.begin(), recvs.end());
  return detail::GraphWalk(context.id(), max_vertices).run(roots);
}

}  // namespace distgrad
