#pragma once
#include <distgrad/engine/carrier.hpp>

#include <string>
#include <utility>

#include <distgrad/tensor/compat.hpp>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>

namespace distgrad {
namespace detail {

class Carrier final : public Node {
 public:
  Carrier(at::Tensor const& input, bool create_graph, unique_function<void()> work)
      : create_graph_(create_graph), work_(std::move(work)) {
    add_input_metadata(input);
  }

  std::string name() const override { return "distgrad::Carrier"; }

 protected:
  variable_list apply(variable_list&&) override {
    c10::AutoGradMode const mode(create_graph_);
    work_();
    return {};
  }

 private:
  bool create_graph_;
  unique_function<void()> work_;
};

}  // namespace detail

DISTGRAD_DECL void run_in_carrier(bool retain_graph, bool create_graph,
                                  unique_function<void()> work) {
  at::Tensor const signal = at::zeros({});
  node_ptr const carrier = make_node<detail::Carrier>(signal, create_graph, std::move(work));
  // The engine is not told about create_graph: it would warn of a cycle between a variable and its
  // .grad, which is not touched. It is told to accumulate: newer versions insist on that where
  // nothing is captured.
  auto& engine = torch::autograd::Engine::get_default_engine();
  engine.execute({Edge(carrier, 0)}, {signal}, retain_graph, false, true);
}

}  // namespace distgrad
