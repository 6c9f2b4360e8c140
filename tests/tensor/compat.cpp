#include <distgrad/tensor/compat.hpp>

#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <ATen/ops/ones.h>

namespace compat_tests {

namespace {

using distgrad::node_ptr;
using torch::autograd::variable_list;

int alive = 0;

struct Chained : torch::autograd::Node {
  explicit Chained(int value) : value(value) { ++alive; }
  ~Chained() override { --alive; }
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
  int value;
};

using Calls = std::vector<std::string>;

// A node as newer versions have it, for the branch that an older libtorch does not take.
struct Hook {
  Calls* calls;
  std::string name;
  variable_list operator()(variable_list const& gradients) const {
    calls->push_back(name);
    return gradients;
  }
  variable_list operator()(variable_list const& outputs, variable_list const&) const {
    calls->push_back(name);
    return outputs;
  }
  void operator()(at::Tensor const&) const { calls->push_back(name); }
};

struct NewNode {
  std::vector<std::unique_ptr<Hook>> tensor, before, after;
  std::unordered_map<std::size_t, std::unique_ptr<Hook>> retains;
  std::unique_ptr<Hook> accumulated;
  at::Tensor variable;

  auto& tensor_pre_hooks() { return tensor; }
  auto& retains_grad_hooks() { return retains; }
  auto& pre_hooks() { return before; }
  auto& post_hooks() { return after; }
  auto& tensor_post_acc_grad_hooks() { return accumulated; }
};

struct OldNode {
  std::vector<std::unique_ptr<Hook>> before;
  auto& pre_hooks() { return before; }
};

struct NewMetadata {
  bool was_default_constructed() const { return true; }
  std::optional<at::ScalarType> grad_dtype() const { return std::nullopt; }
};

}  // namespace

TEST_CASE("a node is made with its arguments and owned by the version's pointer") {
  {
    auto const node = distgrad::make_node<Chained>(7);
    CHECK(node->value == 7);
    node_ptr const base = node;
    CHECK(base.get() == node.get());
    CHECK(alive == 1);
  }
  CHECK(alive == 0);
}

TEST_CASE("the release of a long chain of nodes does not recurse") {
  node_ptr head;
  for (int i = 0; i < 300'000; ++i) {
    auto node = distgrad::make_node<Chained>(i);
    node->add_next_edge({std::move(head), 0});
    head = std::move(node);
  }
  CHECK(alive == 300'000);
  head.reset();
  CHECK(alive == 0);
}

TEST_CASE("pre hooks run in the newer order: tensor, retained gradient, node") {
  Calls calls;
  NewNode node;
  node.before.push_back(std::make_unique<Hook>(Hook{&calls, "node"}));
  node.retains[0] = std::make_unique<Hook>(Hook{&calls, "retain"});
  node.tensor.push_back(std::make_unique<Hook>(Hook{&calls, "tensor"}));
  variable_list gradients{at::ones({2})};
  distgrad::call_pre_hooks(node, gradients);
  CHECK(calls == Calls{"tensor", "retain", "node"});
  CHECK(gradients.size() == 1);
  at::Tensor gradient = gradients[0];
  distgrad::call_leaf_hooks(node, gradient);  // were among the tensor hooks already
  CHECK(calls.size() == 3);
}

TEST_CASE("an older node has pre hooks of one kind and none after accumulation") {
  Calls calls;
  OldNode node;
  node.before.push_back(std::make_unique<Hook>(Hook{&calls, "node"}));
  variable_list gradients;
  distgrad::call_pre_hooks(node, gradients);
  distgrad::call_post_accumulate_hooks(node);
  CHECK(calls == Calls{"node"});
}

TEST_CASE("post hooks and the hook after accumulation run") {
  Calls calls;
  NewNode node;
  variable_list outputs, inputs;
  distgrad::call_post_accumulate_hooks(node);  // none is registered
  node.after.push_back(std::make_unique<Hook>(Hook{&calls, "after"}));
  node.accumulated = std::make_unique<Hook>(Hook{&calls, "accumulated"});
  distgrad::call_post_hooks(node, outputs, inputs);
  distgrad::call_post_accumulate_hooks(node);
  CHECK(calls == Calls{"after", "accumulated"});
}

TEST_CASE("what an input expects is asked in the version's words") {
  CHECK(distgrad::is_unused_input(NewMetadata{}));
  CHECK_FALSE(distgrad::expected_dtype(NewMetadata{}).has_value());
  auto const node = distgrad::make_node<Chained>(0);
  node->add_input_metadata(at::ones({2}, at::kDouble));
  CHECK_FALSE(distgrad::is_unused_input(node->input_metadata(0)));
  CHECK((distgrad::expected_dtype(node->input_metadata(0)) == at::kDouble));
  CHECK(distgrad::node_device(*node).is_cpu());
  CHECK(distgrad::node_streams(*node).empty());
}

TEST_CASE("a leaf's node is recognised") {
  auto const x = at::ones({2}).requires_grad_();
  auto const accumulate = torch::autograd::impl::grad_accumulator(x);
  REQUIRE(distgrad::as_leaf(*accumulate) != nullptr);
  CHECK(distgrad::as_leaf(*accumulate)->variable.is_same(x));
  auto const y = x.mul(2);
  CHECK(distgrad::as_leaf(*y.grad_fn()) == nullptr);
}

}  // namespace compat_tests
