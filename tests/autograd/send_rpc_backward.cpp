#include <distgrad/autograd/send_rpc_backward.hpp>

#include <doctest/doctest.h>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/variable.h>

namespace send_rpc_backward_tests {

using namespace distgrad;

namespace {

AutogradMessageId const message{WorkerId{1}, Incarnation{2}, 3};

at::Tensor leaf(at::IntArrayRef sizes) { return at::ones(sizes).set_requires_grad(true); }

node_ptr send_of(std::vector<at::Tensor> const& tensors) {
  return make_node<SendRpcBackward>(message, WorkerId{7}, tensors);
}

}  // namespace

TEST_CASE("[DA-74] a send function passes its gradients on, undefined ones too") {
  auto const send = send_of({leaf({2}), leaf({3}), leaf({2})});
  auto const first = at::ones({2}), last = at::zeros({2});
  auto const outputs = (*send)({first, at::Tensor(), last});
  REQUIRE(outputs.size() == 3);
  CHECK(outputs[0].is_same(first));
  CHECK_FALSE(outputs[1].defined());
  CHECK(outputs[2].is_same(last));
}

TEST_CASE("a send function leads to the graph of its tensors, in message order") {
  auto const x = leaf({2}), y = leaf({3});
  auto const product = x.mul(2);
  auto const send = send_of({product, y, product});
  auto const& edges = send->next_edges();
  REQUIRE(edges.size() == 3);
  CHECK(edges[0].function.get() == product.grad_fn().get());
  CHECK(as_leaf(*edges[1].function)->variable.is_same(y));
  CHECK(edges[2].function.get() == product.grad_fn().get());
}

TEST_CASE("a send function knows shape and type of each gradient, its message and its receiver") {
  auto const half = at::ones({4, 1}).to(at::kHalf).set_requires_grad(true);
  auto const node = send_of({leaf({2, 3}), half});
  auto const& send = dynamic_cast<SendRpcBackward const&>(*node);
  CHECK(send.id() == message);
  CHECK(send.to() == WorkerId{7});
  CHECK(send.name() == "SendRpcBackward");
  REQUIRE(send.num_inputs() == 2);
  CHECK(send.input_metadata(0).is_same_shape(at::ones({2, 3})));
  CHECK(send.input_metadata(1).is_same_shape(half));
  CHECK((expected_dtype(send.input_metadata(1)) == at::kHalf));
}

TEST_CASE("an output of a node with several is reached by its number") {
  auto const parts = leaf({4, 2}).unbind();
  auto const send = send_of({parts[2], parts[0]});
  CHECK(send->next_edges()[0].input_nr == 2);
  CHECK(send->next_edges()[1].input_nr == 0);
}

}  // namespace send_rpc_backward_tests
