#pragma once
#include <distgrad/engine/carrier.hpp>

#include <string>
#include <utility>

#include <distgrad/tensor/compat.hpp>

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>

namespace distgrad {
namespace detail {

class Carrier final : public Node {
 public:
  Carrier(at::Tensor const& input, unique_function<void()> work) : work_(std::move(work)) {
    add_input_metadata(input);
  }

  std::string name() const override { return "distgrad::Carrier"; }

 protected:
  variable_list apply(variable_list&&) override {
    work_();
    return {};
  }

 private:
  unique_function<void()> work_;
};

}  // namespace detail

DISTGRAD_DECL void run_in_carrier(bool retain_graph, bool create_graph,
                                  unique_function<void()> work) {
  at::Tensor const signal = at::zeros({});
  node_ptr const carrier = make_node<detail::Carrier>(signal, std::move(work));
  // `true`: newer versions insist on a pass that accumulates or captures something.
  torch::autograd::Engine::get_default_engine().execute({Edge(carrier, 0)}, {signal}, retain_graph,
                                                        create_graph, true);
}

}  // namespace distgrad
