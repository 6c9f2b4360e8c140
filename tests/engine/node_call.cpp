#include <distgrad/engine/node_call.hpp>

#include <functional>
#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <distgrad/core/error.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/anomaly_mode.h>

namespace node_call_tests {

namespace {

using distgrad::Node;
using distgrad::variable_list;

struct Recorder : Node {
  std::function<variable_list(variable_list)> answer = [](variable_list g) { return g; };
  int released = 0, announced = 0;

  explicit Recorder(variable_list const& inputs = {}) {
    for (auto const& tensor : inputs) add_input_metadata(tensor);
  }
  std::string name() const override { return "Recorder"; }
  variable_list apply(variable_list&& gradients) override { return answer(std::move(gradients)); }
  void will_release_variables() override { ++announced; }
  void release_variables() override { ++released; }
};

std::string fitted(at::Tensor const& input, at::Tensor& gradient) {
  variable_list gradients{gradient};
  auto const problem =
      distgrad::fit_to_inputs(*distgrad::make_node<Recorder>(variable_list{input}), gradients);
  gradient = gradients[0];
  return problem;
}

bool contains(std::string const& text, char const* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a node gives up what it saved only if the graph is not retained") {
  auto const node = distgrad::make_node<Recorder>();
  distgrad::call_node(*node, {}, true);
  CHECK(node->released + node->announced == 0);
  distgrad::call_node(*node, {}, false);
  CHECK(node->released == 1);
  CHECK(node->announced == 1);
}

TEST_CASE("a gradient is summed over broadcast dimensions, cast, and a scalar kept") {
  at::Tensor g = at::ones({2, 3}, at::kDouble);
  CHECK(fitted(at::ones({1, 3}), g) == "");
  CHECK(g.equal(at::full({1, 3}, 2.0)));
  CHECK((g.scalar_type() == at::kFloat));

  g = at::Tensor();
  CHECK(fitted(at::ones({3}), g) == "");
  g = at::ones({3});
  CHECK(fitted(at::ones({3}, at::kComplexFloat), g) == "");
  CHECK(g.is_complex());
}

TEST_CASE("what does not fit is described") {
  at::Tensor g = at::ones({2});
  CHECK(contains(fitted(at::ones({3}), g), "[2]"));
  g = at::ones({3}, at::kComplexFloat);
  CHECK(contains(fitted(at::ones({3}), g), "dtype"));
  g = at::empty({3}, at::TensorOptions().device(at::kMeta));
  CHECK(contains(fitted(at::ones({3}), g), "device"));
  variable_list none;
  auto const node = distgrad::make_node<Recorder>(variable_list{at::ones({1})});
  CHECK(contains(distgrad::fit_to_inputs(*node, none), "0 gradients where 1"));
}

TEST_CASE("a sparse gradient fits a dense input") {
  at::Tensor g = at::sparse_coo_tensor(at::ones({1, 1}, at::kLong), at::ones({1}), {3});
  CHECK(fitted(at::ones({3}), g) == "");
  CHECK(g.is_sparse());
}

TEST_CASE("a wrong number of outputs names the node") {
  auto const node = distgrad::make_node<Recorder>();
  node->answer = [](variable_list) { return variable_list(2); };
  std::string text;
  try {
    distgrad::call_node(*node, {}, true);
  } catch (distgrad::Error const& error) {
    text = error.text();
  }
  CHECK_MESSAGE(contains(text, "'Recorder' returned 2 gradients where 0"), text);
}

TEST_CASE("in anomaly mode the node that makes a nan is named") {
  torch::autograd::DetectAnomalyGuard const guard;
  auto const node = distgrad::make_node<Recorder>();
  auto const next = distgrad::make_node<Recorder>(variable_list{at::ones({2})});
  node->add_next_edge({next, 0});
  node->answer = [](variable_list) {
    return variable_list{at::ones({2}).div(at::zeros({2})).sub(at::ones({2}).div(at::zeros({2})))};
  };
  CHECK_THROWS_AS(distgrad::call_node(*node, {}, true), distgrad::Error);
  node->answer = [](variable_list) { return variable_list{at::ones({2})}; };
  CHECK_NOTHROW(distgrad::call_node(*node, {}, true));
}

}  // namespace node_call_tests
