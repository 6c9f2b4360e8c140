#include <distgrad/engine/executor.hpp>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <distgrad/core/error.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace executor_tests {

namespace {

using distgrad::errc;
using distgrad::Error;
using distgrad::Executor;
using distgrad::Node;
using distgrad::node_ptr;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); }

struct Probe : torch::autograd::Function<Probe> {
  static inline thread_local std::function<variable_list(at::Tensor)> answer;
  static Variable forward(AutogradContext*, Variable a, Variable b) { return a.add(b); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return answer(std::move(gradients[0]));
  }
};

std::unique_ptr<Executor> finished(at::Tensor const& root, at::Tensor gradient = {},
                                   Executor::Options options = {}) {
  auto executor = std::make_unique<Executor>(options);
  executor->add_root(root, std::move(gradient));
  executor->run_ready();
  REQUIRE(executor->is_complete());
  return executor;
}

template <class F>
std::pair<errc, std::string> error_of(F&& f) {
  try {
    f();
  } catch (Error const& error) {
    return {static_cast<errc>(error.code().value()), error.text()};
  }
  return {errc{}, "no error"};
}

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

// Stand-ins for the library's send and recv functions.
struct Send : Node {
  explicit Send(variable_list const& shipped) : Node(torch::autograd::collect_next_edges(shipped)) {
    for (auto const& tensor : shipped) add_input_metadata(tensor);
  }
  std::string name() const override { return "Send"; }
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
};

struct Recv : Node {
  std::string name() const override { return "Recv"; }
  variable_list apply(variable_list&&) override { throw std::logic_error("a recv was called"); }
};

bool is_recv(Node const& node) { return dynamic_cast<Recv const*>(&node) != nullptr; }

// Two workers whose messages are a queue of closures.
struct Message {
  node_ptr send;
  node_ptr recv;
  variable_list received;
};

Message ship(variable_list const& tensors) {
  Message message{distgrad::make_node<Send>(tensors), distgrad::make_node<Recv>(), {}};
  for (auto const& tensor : tensors) {
    at::Tensor copy = tensor.detach().clone();
    torch::autograd::set_history(copy, message.recv);
    message.received.push_back(copy);
  }
  return message;
}

struct PreHook : torch::autograd::FunctionPreHook {
  explicit PreHook(std::function<void()> call) : call(std::move(call)) {}
  variable_list operator()(variable_list const& gradients) override {
    call();
    return gradients;
  }
  std::function<void()> call;
};

struct PostHook : torch::autograd::FunctionPostHook {
  using Call = std::function<void(variable_list const&, variable_list const&)>;
  explicit PostHook(Call call) : call(std::move(call)) {}
  variable_list operator()(variable_list const& outputs, variable_list const& inputs) override {
    call(outputs, inputs);
    return outputs;
  }
  Call call;
};

// Such hooks came with libtorch 2.1; earlier there is nothing to test.
template <class Leaf>
bool add_post_accumulate_hook(Leaf& leaf, std::function<void(at::Tensor const&)> call) {
  if constexpr (requires { leaf.tensor_post_acc_grad_hooks(); }) {
    auto& slot = leaf.tensor_post_acc_grad_hooks();
    struct Hook : std::remove_reference_t<decltype(slot)>::element_type {
      explicit Hook(std::function<void(at::Tensor const&)> c) : call(std::move(c)) {}
      void operator()(at::Tensor const& tensor) override { call(tensor); }
      std::function<void(at::Tensor const&)> call;
    };
    slot = std::make_unique<Hook>(std::move(call));
    return true;
  }
  return false;
}

}  // namespace

// --- accumulation --------------------------------------------------------------------------------

TEST_CASE("[DA-61] a gradient with a single consumer is kept without a copy") {
  auto const a = leaf({4}), b = leaf({4});
  void* returned = nullptr;
  Probe::answer = [&](at::Tensor g) {
    auto result = g.mul(2);
    returned = result.data_ptr();
    return variable_list{std::move(result), {}};
  };
  auto const executor = finished(Probe::apply(a, b).sum());
  CHECK(executor->gradients().find(a).data_ptr() == returned);
  CHECK_FALSE(executor->gradients().contains(b));
}

TEST_CASE("[DA-61] an expanded gradient is copied") {
  auto const a = leaf({4}), b = leaf({4});
  Probe::answer = [](at::Tensor) {
    auto one = at::ones({1}).expand({4});
    return variable_list{one, one};
  };
  auto const executor = finished(Probe::apply(a, b).sum());
  auto const ga = executor->gradients().find(a), gb = executor->gradients().find(b);
  CHECK(ga.is_contiguous());
  CHECK(ga.data_ptr() != gb.data_ptr());
  CHECK(ga.equal(at::ones({4})));
}

TEST_CASE("[DA-61] a gradient that two leaves share is copied for both") {
  auto const a = leaf({4}), b = leaf({4});
  void* returned = nullptr;
  Probe::answer = [&](at::Tensor g) {
    auto result = g.mul(2);
    returned = result.data_ptr();
    return variable_list{result, std::move(result)};
  };
  auto const executor = finished(Probe::apply(a, b).sum());
  auto const ga = executor->gradients().find(a), gb = executor->gradients().find(b);
  CHECK(ga.data_ptr() != returned);
  CHECK(gb.data_ptr() != returned);
  CHECK(ga.data_ptr() != gb.data_ptr());
  CHECK(ga.equal(gb));
}

TEST_CASE("a root's gradient stays the caller's") {
  auto const a = leaf({4});
  auto const gradient = at::randn({4});
  auto const executor = finished(a, gradient);
  CHECK(executor->gradients().find(a).data_ptr() != gradient.data_ptr());
}

TEST_CASE("a gradient that somebody keeps is not changed by a later sum") {
  auto const a = leaf({4});
  auto const y = a.mul(1);
  auto const first = y.mul(2);  // runs last of the three uses: its result comes into a sum
  auto const second = y.mul(3), third = y.mul(4);
  at::Tensor kept;
  third.grad_fn()->add_post_hook(std::make_unique<PostHook>(
      [&](variable_list const& outputs, variable_list const&) { kept = outputs[0]; }));
  auto const executor = finished(first.add(second).add(third).sum());
  CHECK(kept.equal(at::full({4}, 4.0)));
  CHECK(executor->gradients().find(a).equal(at::full({4}, 9.0)));
}

TEST_CASE("ready nodes run latest first, and a leaf before all") {
  auto const a = leaf({1}), b = leaf({1});
  std::vector<std::string> order;
  auto const note = [&](node_ptr const& node, char const* name) {
    node->add_post_hook(std::make_unique<PostHook>(
        [&order, name](auto const&, auto const&) { order.push_back(name); }));
  };
  auto const leaf_node = torch::autograd::impl::grad_accumulator(b);
  note(leaf_node, "b");
  std::vector<at::Tensor> branches;
  for (char const* name : {"0", "1", "2", "3", "4", "5"}) {
    branches.push_back(a.mul(2));
    note(branches.back().grad_fn(), name);
  }
  Executor executor({});
  for (int i : {2, 4, 0}) executor.add_root(branches[i]);
  executor.add_root(b);
  for (int i : {5, 1, 3}) executor.add_root(branches[i]);
  executor.run_ready();
  CHECK(order == std::vector<std::string>{"b", "5", "4", "3", "2", "1", "0"});
}

TEST_CASE("[DA-27] .grad of a leaf stays as it was") {
  auto const a = leaf({4}), b = leaf({4});
  auto const before = at::randn({4});
  b.mutable_grad() = before;
  finished(a.mul(b).sum());
  CHECK_FALSE(a.grad().defined());
  CHECK(b.grad().is_same(before));
}

TEST_CASE("a graph that is retained can be run again and the gradients add up") {
  auto const a = leaf({4});
  auto const y = a.exp().sum();
  auto const first = finished(y, {}, {.retain_graph = true});
  auto const once = first->gradients().find(a).clone();
  distgrad::GradientMap total = first->take_gradients();
  CHECK(first->gradients().empty());
  total.merge(finished(y)->take_gradients());
  CHECK(total.find(a).equal(once.mul(2)));
}

TEST_CASE("a graph that was not retained says so when it is run again") {
  auto const a = leaf({4});
  auto const y = a.exp().sum();
  finished(y, {}, {.retain_graph = true});
  finished(y);
  Executor third({});
  third.add_root(y);
  std::string text;
  try {
    third.run_ready();
  } catch (std::exception const& error) {
    text = error.what();
  }
  CHECK(contains(text, "second time"));
  CHECK(third.current_node_name() == "ExpBackward0");
  CHECK_FALSE(third.is_complete());
}

// --- hooks ---------------------------------------------------------------------------------------

TEST_CASE("[DA-60] post hooks of a leaf with two incoming edges are called once each") {
  auto const a = leaf({4}), b = leaf({4});
  auto const accumulate = torch::autograd::impl::grad_accumulator(a);
  int calls[3] = {};
  at::Tensor seen;
  for (int& count : calls) {
    accumulate->add_post_hook(
        std::make_unique<PostHook>([&](variable_list const& outputs, variable_list const& inputs) {
          ++count;
          CHECK(outputs.empty());
          seen = inputs.at(0);
        }));
  }
  auto const executor = finished(a.mul(b).add(a.mul(2)).sum());
  for (int count : calls) CHECK(count == 1);
  CHECK(executor->gradients().find(a).equal(b.add(2)));
  CHECK(seen.equal(b.add(2)));
}

TEST_CASE("a leaf with post hooks still keeps its gradient without a copy") {
  auto const a = leaf({4}), b = leaf({4});
  void* returned = nullptr;
  auto const hold = torch::autograd::impl::grad_accumulator(a);
  hold->add_post_hook(std::make_unique<PostHook>([](auto const&, auto const&) {}));
  Probe::answer = [&](at::Tensor g) {
    auto result = g.mul(2);
    returned = result.data_ptr();
    return variable_list{std::move(result), {}};
  };
  auto const executor = finished(Probe::apply(a, b).sum());
  CHECK(executor->gradients().find(a).data_ptr() == returned);
}

TEST_CASE("a leaf's hooks run in order: tensor, node before, accumulate, node after") {
  auto const a = leaf({4});
  auto const accumulate = torch::autograd::impl::grad_accumulator(a);
  std::vector<std::string> calls;
  accumulate->add_pre_hook(std::make_unique<PreHook>([&] { calls.push_back("before"); }));
  accumulate->add_post_hook(
      std::make_unique<PostHook>([&](auto const&, auto const&) { calls.push_back("after"); }));
  a.register_hook([&](at::Tensor const&) { calls.push_back("tensor"); });
  finished(a.exp().sum());
  REQUIRE(calls.size() == 3);
  CHECK(calls.back() == "after");
  // Newer versions made tensor hooks hooks of the node; before, they belonged to accumulating.
  CHECK(calls.front() == (distgrad::has_tensor_pre_hooks<Node> ? "tensor" : "before"));
}

TEST_CASE("a leaf's tensor hook may replace the gradient") {
  auto const a = leaf({4});
  a.register_hook([](at::Tensor const& g) { return g.mul(2); });
  CHECK(finished(a.mul(3).sum())->gradients().find(a).equal(at::full({4}, 6.0)));
}

TEST_CASE("a hook after accumulation is called once, though .grad stays undefined") {
  auto const a = leaf({4});
  int calls = 0;
  auto const node = torch::autograd::impl::grad_accumulator(a);
  if (add_post_accumulate_hook(*distgrad::as_leaf(*node), [&](at::Tensor const& variable) {
        CHECK(variable.is_same(a));
        ++calls;
      })) {
    finished(a.exp().add(a).sum());
    CHECK(calls == 1);
  }
}

TEST_CASE("node hooks run around the node, and a post hook sees what it was called with") {
  auto const a = leaf({4});
  auto const y = a.mul(2);
  std::vector<std::string> calls;
  y.grad_fn()->add_pre_hook(std::make_unique<PreHook>([&] { calls.push_back("before"); }));
  y.grad_fn()->add_post_hook(
      std::make_unique<PostHook>([&](variable_list const& outputs, variable_list const& inputs) {
        calls.push_back("after");
        CHECK(outputs.at(0).equal(at::full({4}, 2.0)));
        CHECK(inputs.at(0).equal(at::ones({4})));
      }));
  finished(y.sum());
  CHECK(calls == std::vector<std::string>{"before", "after"});
}

// --- roots and errors ----------------------------------------------------------------------------

TEST_CASE("a root must lead to a variable, and have one element or a gradient that fits") {
  Executor executor({});
  auto const a = leaf({4});
  auto const check = [&](at::Tensor const& root, at::Tensor gradient, char const* part) {
    auto const [code, text] = error_of([&] { executor.add_root(root, gradient); });
    CHECK(code == errc::invalid_root);
    CHECK_MESSAGE(contains(text, part), text);
  };
  check(at::ones({1}), {}, "does not require grad");
  check(at::Tensor(), {}, "does not require grad");
  check(a.mul(2), {}, "4 elements");
  check(a.mul(2), at::ones({3}), "[3]");
  CHECK(executor.size() == 0);
  CHECK(executor.is_complete());
}

TEST_CASE("a node that returns a gradient of the wrong shape is named") {
  auto const a = leaf({4}), b = leaf({4});
  Probe::answer = [](at::Tensor) { return variable_list{at::ones({3}), {}}; };
  Executor executor({});
  executor.add_root(Probe::apply(a.mul(1), b).sum());
  auto const [code, text] = error_of([&] { executor.run_ready(); });
  CHECK(code == errc::pass_failed);
  CHECK_MESSAGE(contains(text, "Probe"), text);
  CHECK_MESSAGE(contains(text, "[3]"), text);
}

TEST_CASE("a complex gradient for a real input is an error") {
  auto const a = leaf({4}), b = leaf({4});
  Probe::answer = [](at::Tensor) { return variable_list{at::ones({4}, at::kComplexFloat), {}}; };
  Executor executor({});
  executor.add_root(Probe::apply(a.mul(1), b).sum());
  CHECK(error_of([&] { executor.run_ready(); }).first == errc::pass_failed);
}

TEST_CASE("an exception of a node passes unchanged, names the node and ends the pass") {
  struct Unusual {};
  auto const a = leaf({4}), b = leaf({4});
  Probe::answer = [](at::Tensor) -> variable_list { throw Unusual(); };
  Executor executor({});
  executor.add_root(Probe::apply(a, b).sum());
  CHECK(executor.current_node_name().empty());
  CHECK_THROWS_AS(executor.run_ready(), Unusual);
  CHECK(contains(executor.current_node_name(), "Probe"));
  CHECK(executor.is_failed());
  CHECK_FALSE(executor.is_complete());
  CHECK_FALSE(executor.run_ready());
}

TEST_CASE("a node that ends the graph and is nothing known is an error of the discovery") {
  auto x = at::ones({2});
  torch::autograd::set_history(x, distgrad::make_node<Recv>());
  Executor executor({});  // knows no boundary
  auto const [code, text] = error_of([&] { executor.add_root(x.sum()); });
  CHECK(code == errc::pass_failed);
  CHECK_MESSAGE(contains(text, "'Recv'"), text);
  CHECK(executor.is_failed());
}

TEST_CASE("discovery after the first run is refused") {
  auto const a = leaf({1});
  auto const executor = finished(a.mul(2));
  CHECK(error_of([&] { executor->add_root(a.mul(3)); }).first == errc::internal);
}

TEST_CASE("a cancelled pass stops before the next node") {
  auto const a = leaf({4}), b = leaf({4});
  Executor executor({});
  Probe::answer = [&](at::Tensor g) {
    executor.cancel();
    return variable_list{g, g};
  };
  executor.add_root(Probe::apply(a, b).sum());
  executor.run_ready();
  CHECK(executor.is_failed());
  CHECK(executor.is_idle());
  CHECK(executor.gradients().empty());
}

TEST_CASE("a node that changes the grad mode does not change it for the next") {
  auto const a = leaf({4}), b = leaf({4});
  Probe::answer = [](at::Tensor g) {
    c10::GradMode::set_enabled(true);
    return variable_list{g, g};
  };
  c10::AutoGradMode const mode(true);
  auto const y = a.mul(b).exp();
  auto const z = y.mul(y);  // its gradient would get a graph: it is computed from y
  bool has_graph = true;
  y.register_hook([&](at::Tensor const& g) { has_graph = g.requires_grad(); });
  finished(Probe::apply(z, b).sum());
  CHECK_FALSE(has_graph);
  CHECK(c10::GradMode::is_enabled());
}

TEST_CASE("a pass may be driven by another thread than the one that made it") {
  auto const a = leaf({4});
  Executor executor({});
  executor.add_root(a.exp().sum());
  std::thread([&] { executor.run_ready(); }).join();
  CHECK(executor.is_complete());
  CHECK_FALSE(executor.gradients().find(a).requires_grad());
}

// --- two workers ---------------------------------------------------------------------------------

TEST_CASE("a graph cut between two executors has the gradients of the whole") {
  auto const w = leaf({4}), v = leaf({4});
  auto const y = w.sin();
  Message const message = ship({y, y.mul(2)});
  auto const loss = message.received[0].mul(v).add(message.received[1].exp()).sum();

  Executor sender({}, {&is_recv, nullptr});
  int gradients_messages = 0;
  Executor receiver({}, {&is_recv, [&](Node& node, variable_list gradients, distgrad::Lives) {
                           CHECK(&node == message.recv.get());
                           ++gradients_messages;
                           sender.inject(*message.send, std::move(gradients));
                         }});
  receiver.add_root(loss);
  CHECK(receiver.take_reached() == std::vector<Node*>{message.recv.get()});
  CHECK(receiver.take_reached().empty());

  sender.expand(std::vector<node_ptr>{message.send});
  sender.expand(std::vector<node_ptr>{message.send});  // known already
  CHECK(sender.awaited_sends() == std::vector<Node*>{message.send.get()});
  CHECK_FALSE(sender.run_ready());
  CHECK_FALSE(sender.is_complete());
  CHECK(sender.waiting_names(1) == std::vector<std::string>{"Send"});

  CHECK(receiver.run_ready());
  CHECK(receiver.is_complete());
  CHECK(gradients_messages == 1);
  CHECK(sender.awaited_sends().empty());
  CHECK(sender.run_ready());
  CHECK(sender.is_complete());

  auto const again = w.sin();
  auto const uncut = again.mul(v).add(again.mul(2).exp()).sum();
  auto const expected = torch::autograd::grad({uncut}, {w, v});
  CHECK(sender.gradients().find(w).allclose(expected[0]));
  CHECK(receiver.gradients().find(v).equal(expected[1]));
}

TEST_CASE("a graph that goes to and fro between two executors") {
  auto const w0 = leaf({4}), w1 = leaf({4}), w2 = leaf({4});
  Message const there = ship({w0.sin()});
  Message const back = ship({there.received[0].mul(w1).cos()});
  auto const loss = back.received[0].mul(w2).add(w0).sum();

  std::deque<std::function<void()>> network;
  Executor* at[2] = {};
  auto const to = [&](int worker) {
    return [&, worker](Node& node, variable_list gradients, distgrad::Lives) {
      auto const& send = &node == there.recv.get() ? there.send : back.send;
      network.push_back(
          [&at, worker, &send, g = std::move(gradients)] { at[worker]->inject(*send, g); });
    };
  };
  Executor first({}, {&is_recv, to(1)}), second({}, {&is_recv, to(0)});
  at[0] = &first;
  at[1] = &second;
  first.add_root(loss);
  first.expand(std::vector<node_ptr>{there.send});
  second.expand(std::vector<node_ptr>{back.send});
  while (!first.is_complete() || !second.is_complete()) {
    bool const first_ran = first.run_ready(), second_ran = second.run_ready();
    REQUIRE((first_ran || second_ran || !network.empty()));
    while (!network.empty()) {
      network.front()();
      network.pop_front();
    }
  }
  auto const uncut = w0.sin().mul(w1).cos().mul(w2).add(w0).sum();
  auto const expected = torch::autograd::grad({uncut}, {w0, w1, w2});
  CHECK(first.gradients().find(w0).equal(expected[0]));
  CHECK(second.gradients().find(w1).equal(expected[1]));
  CHECK(first.gradients().find(w2).equal(expected[2]));
}

TEST_CASE("a recv function may hand over to a send function of its own executor") {
  auto const w = leaf({4});
  Message const message = ship({w.exp()});
  Executor* self = nullptr;
  Executor executor({}, {&is_recv, [&](Node&, variable_list gradients, distgrad::Lives) {
                           CHECK_FALSE(self->run_ready());  // the outer call goes on
                           self->inject(*message.send, std::move(gradients));
                         }});
  self = &executor;
  executor.add_root(message.received[0].sum());
  executor.expand(std::vector<node_ptr>{message.send});
  executor.run_ready();
  CHECK(executor.is_complete());
  CHECK(executor.gradients().find(w).equal(w.exp()));
}

TEST_CASE("a received tensor that the loss does not use gives an undefined gradient") {
  auto const a = leaf({4}), b = leaf({4});
  Message const message = ship({a.mul(2), b.mul(3)});
  Executor sender({});
  Executor receiver({}, {&is_recv, [&](Node&, variable_list gradients, distgrad::Lives) {
                           CHECK(gradients.at(0).defined());
                           CHECK_FALSE(gradients.at(1).defined());
                           sender.inject(*message.send, std::move(gradients));
                         }});
  sender.expand(std::vector<node_ptr>{message.send});
  receiver.add_root(message.received[0].sum());
  receiver.run_ready();
  CHECK(sender.awaited_sends().empty());
}

TEST_CASE("a send function runs with undefined gradients and every node behind it runs") {
  auto const a = leaf({4}), b = leaf({4});
  Message const message = ship({a.mul(2), b.mul(3)});
  Executor sender({});
  sender.expand(std::vector<node_ptr>{message.send});
  sender.inject(*message.send, {at::ones({4}), {}});
  sender.run_ready();
  CHECK(sender.is_complete());
  CHECK(sender.gradients().find(a).equal(at::full({4}, 2.0)));
  CHECK_FALSE(sender.gradients().contains(b));
}

TEST_CASE("hooks of send and recv functions run, the recv's before its gradients are handed on") {
  auto const w = leaf({4});
  Message const message = ship({w.mul(1)});
  std::vector<std::string> calls;
  message.received[0].register_hook([&](at::Tensor const& g) {
    calls.push_back("received tensor");
    return g.mul(2);
  });
  message.send->add_post_hook(
      std::make_unique<PostHook>([&](auto const&, auto const&) { calls.push_back("send"); }));
  Executor* self = nullptr;
  Executor executor({}, {&is_recv, [&](Node&, variable_list gradients, distgrad::Lives) {
                           calls.push_back("recv");
                           self->inject(*message.send, std::move(gradients));
                         }});
  self = &executor;
  executor.add_root(message.received[0].sum());
  executor.expand(std::vector<node_ptr>{message.send});
  executor.run_ready();
  CHECK(calls == std::vector<std::string>{"received tensor", "recv", "send"});
  CHECK(executor.gradients().find(w).equal(at::full({4}, 2.0)));
}

TEST_CASE("gradients from a peer that do not fit are refused and change nothing") {
  auto const w = leaf({4});
  Message const message = ship({w.mul(2)}), other = ship({w.mul(3)});
  Executor sender({});
  sender.expand(std::vector<node_ptr>{message.send});
  auto const refused = [&](node_ptr const& send, variable_list gradients) {
    return error_of([&] { sender.inject(*send, std::move(gradients)); }).first;
  };
  CHECK(refused(message.send, {}) == errc::bad_message);
  CHECK(refused(message.send, {at::ones({4}), at::ones({4})}) == errc::bad_message);
  CHECK(refused(message.send, {at::ones({5})}) == errc::bad_message);
  CHECK(refused(other.send, {at::ones({4})}) == errc::bad_message);
  CHECK(sender.is_idle());
  sender.inject(*message.send, {at::ones({4})});
  CHECK(refused(message.send, {at::ones({4})}) == errc::bad_message);
  sender.run_ready();
  CHECK(sender.gradients().find(w).equal(at::full({4}, 2.0)));
}

TEST_CASE("a node that waits for a send function is partial until the gradient comes") {
  auto const w = leaf({4});
  auto const y = w.sin();
  Message const message = ship({y});
  Executor executor({});
  executor.expand(std::vector<node_ptr>{message.send});
  executor.add_root(y.sum());
  executor.run_ready();
  CHECK_FALSE(executor.is_complete());
  CHECK(executor.is_idle());
  CHECK(executor.partial() == 1);
  CHECK(executor.waiting() == 3);  // the send function, sin and the leaf
  executor.inject(*message.send, {at::ones({4})});
  executor.run_ready();
  CHECK(executor.is_complete());
  CHECK(executor.partial() == 0);
  CHECK(executor.gradients().find(w).equal(w.cos().mul(2)));
}

}  // namespace executor_tests
