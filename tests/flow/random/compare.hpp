#pragma once
// Whether a graph that is cut has the gradients of the uncut one.

#include <exception>
#include <string>

#include "cut.hpp"
#include "uncut.hpp"

namespace random_graphs {

/// How far `found` is from `expected`, in words; empty if it is near enough.
inline std::string difference(at::Tensor const& found, at::Tensor const& expected) {
  if (!expected.defined()) return found.defined() ? "should not be there" : "";
  if (!found.defined()) return "is missing";
  if (found.sizes() != expected.sizes()) return "has another shape";
  if (found.dtype() != expected.dtype()) return "has another type";
  if (found.layout() != expected.layout()) return "has another layout";
  if (expected.numel() == 0) return {};
  auto const right = expected.detach().to_dense();
  auto const distance = found.detach().to_dense().sub(right).abs().max().item<double>();
  auto const largest = right.abs().max().item<double>();
  // Not "greater": a NaN is a difference, too.
  if (distance <= 1e-12 * (1 + largest)) return {};
  return "is off by " + std::to_string(distance / (1 + largest)) + " of its size";
}

/// @return what is wrong; empty if nothing is.
inline std::string compare(Graph const& graph, distgrad::Worker const& initiator,
                           distgrad::BackwardMode mode) {
  Uncut expected(graph);
  run_passes(graph, expected);
  try {
    Cut found(initiator, graph, mode);
    for (auto const& sink : graph.sinks()) {
      auto const wrong = difference(found.value(sink), expected.value(sink));
      if (!wrong.empty()) return "value %" + std::to_string(sink.node) + " " + wrong;
    }
    run_passes(graph, found);
    for (int leaf = 0; leaf < graph.leaves(); ++leaf) {
      auto const wrong = difference(found.gradient(leaf), expected.gradient(leaf));
      if (!wrong.empty()) return "the gradient of leaf %" + std::to_string(leaf) + " " + wrong;
    }
  } catch (std::exception const& error) {
    return error.what();
  }
  return {};
}

}  // namespace random_graphs
