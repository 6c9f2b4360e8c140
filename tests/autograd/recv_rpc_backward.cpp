#include <distgrad/autograd/recv_rpc_backward.hpp>

#include <doctest/doctest.h>
#include <distgrad/core/error.hpp>

#include <ATen/ops/ones.h>

#include <string>

namespace recv_rpc_backward_tests {

using namespace distgrad;

namespace {

ContextId const context{WorkerId{0}, Incarnation{2}, 9};
AutogradMessageId const message{WorkerId{1}, Incarnation{2}, 3};

node_ptr recv() { return make_node<RecvRpcBackward>(context, message, WorkerId{1}); }

}  // namespace

TEST_CASE("a recv function becomes the end of the graph of a message's tensors") {
  std::vector<at::Tensor> tensors{at::ones({2}), at::ones({3}), at::ones({2, 2})};
  auto const node = recv();
  RecvRpcBackward::attach(node, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CHECK(tensors[i].requires_grad());
    CHECK_FALSE(tensors[i].is_leaf());
    CHECK(tensors[i].grad_fn().get() == node.get());
    CHECK(std::size_t(tensors[i].output_nr()) == i);
  }
  CHECK(node->num_inputs() == 3);
  CHECK(node->next_edges().empty());
  auto const& function = dynamic_cast<RecvRpcBackward const&>(*node);
  CHECK(function.context() == context);
  CHECK(function.id() == message);
  CHECK(function.from() == WorkerId{1});
}

TEST_CASE("a received tensor may be changed in place, as an output of any node") {
  std::vector<at::Tensor> tensors{at::ones({2})};
  auto const node = recv();
  RecvRpcBackward::attach(node, tensors);
  tensors[0].mul_(3);
  CHECK(tensors[0].grad_fn().get() != node.get());
  CHECK(tensors[0].grad_fn()->next_edge(0).function.get() == node.get());
}

TEST_CASE("an ordinary backward that reaches a recv function says what to call instead") {
  std::vector<at::Tensor> tensors{at::ones({2})};
  RecvRpcBackward::attach(recv(), tensors);
  std::string text;
  try {
    tensors[0].sum().backward();
  } catch (std::exception const& error) {
    text = error.what();
  }
  CHECK(text.find("distributed autograd context " + to_string(context)) != std::string::npos);
  CHECK(text.find("worker 1") != std::string::npos);
}

}  // namespace recv_rpc_backward_tests
