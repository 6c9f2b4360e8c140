#pragma once
#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include <distgrad/autograd/context_dot.hpp>

namespace distgrad {
namespace detail {

class DotWriter {
 public:
  std::string write(std::vector<ContextPart> const& parts) {
    text_ = "digraph context {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n";
    for (std::size_t part = 0; part < parts.size(); ++part) box(part, parts[part]);
    for (auto const& [id, label] : far_ends_) {
      if (!drawn_.contains(id)) text_ += "  " + node(id, label, ", style=dotted");
    }
    for (auto const& message : messages_) text_ += message;
    return std::move(text_) + "}\n";
  }

 private:
  using Kind = ContextGraph::Kind;

  static std::string quoted(std::string_view text) {
    std::string result = "\"";
    for (char const c : text) {
      if (c == '"' || c == '\\') result += '\\';
      result += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return result + '"';
  }
  static std::string node(std::string const& id, std::string const& label, std::string_view style) {
    return quoted(id) + " [label=" + quoted(label) + std::string(style) + "];\n";
  }
  static std::string arrow(std::string const& from, std::string const& to, std::string_view style) {
    return quoted(from) + " -> " + quoted(to) + std::string(style) + ";\n";
  }

  // Ends of messages go by the message, so that parts of different workers fit together.
  static std::string end_id(Kind kind, AutogradMessageId message) {
    return (kind == Kind::send ? "send " : "recv ") + to_string(message);
  }
  static std::string id_of(std::size_t part, ContextGraph const& graph, std::size_t index) {
    auto const& vertex = graph.vertices[index];
    if (vertex.kind == Kind::send || vertex.kind == Kind::recv) {
      return end_id(vertex.kind, vertex.message);
    }
    return std::to_string(part) + "." + std::to_string(index);
  }

  void box(std::size_t part, ContextPart const& content) {
    auto const& graph = content.graph;
    text_ += "  subgraph cluster_" + std::to_string(part) +
             " {\n    label=" + quoted(content.worker + (graph.is_cut ? ", not all of it" : "")) +
             ";\n";
    for (std::size_t i = 0; i < graph.vertices.size(); ++i) vertex(part, graph, i);
    for (auto const& [from, to] : graph.arrows) {
      text_ += "    " + arrow(id_of(part, graph, from), id_of(part, graph, to), "");
    }
    text_ += "  }\n";
  }

  void vertex(std::size_t part, ContextGraph const& graph, std::size_t index) {
    auto const& vertex = graph.vertices[index];
    auto const id = id_of(part, graph, index);
    drawn_.insert(id);
    if (vertex.kind == Kind::leaf) {
      text_ += "    " + node(id, "leaf " + vertex.name, ", style=bold");
    } else if (vertex.kind == Kind::function) {
      text_ += "    " + node(id, vertex.name, "");
    } else {
      bool const is_send = vertex.kind == Kind::send;
      text_ += "    " + node(id, vertex.name + "\n" + to_string(vertex.message), ", shape=ellipse");
      auto const other = end_id(is_send ? Kind::recv : Kind::send, vertex.message);
      far_ends_.insert({other, "rank " + to_string(vertex.peer)});
      messages_.insert("  " + (is_send ? arrow(other, id, dashed) : arrow(id, other, dashed)));
    }
  }

  static constexpr std::string_view dashed = " [style=dashed]";
  std::string text_;
  std::set<std::string> drawn_, messages_;
  std::set<std::pair<std::string, std::string>> far_ends_;
};

}  // namespace detail

DISTGRAD_DECL std::string to_dot(std::vector<ContextPart> const& parts) {
  return detail::DotWriter().write(parts);
}

}  // namespace distgrad
