// What calls record in a context: which send and recv functions on which worker, joined to what.
#include "workers.hpp"

#include <string>

#include <torch/csrc/autograd/variable.h>

namespace graph_shapes_tests {

using namespace distgrad;
using rig::Layout;
using rig::leaf;
using rig::Mode;
using rig::Workers;

namespace {

at::Tensor shapes_add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }
constexpr auto shapes_add_lambda = [](at::Tensor const& x, at::Tensor const& y) {
  return x.add(y);
};

// Adds at the end of `way`, a list of ranks; each worker on it asks the next.
at::Tensor add_along(at::Tensor const& x, at::Tensor const& y, std::vector<int> const& way,
                     bool by_remote) {
  if (way.empty()) return x.add(y);
  std::vector<int> const rest(way.begin() + 1, way.end());
  auto& self = this_worker();
  if (by_remote) return self.remote<add_along>(way[0], x, y, rest, by_remote).to_here();
  return self.rpc_sync<add_along>(way[0], x, y, rest, by_remote);
}

// --- looking at a context ------------------------------------------------------------------------

/// The only send function of a worker's part that went to `to` with `tensors` tensors.
SendRpcBackward const& send_to(Worker const& worker, ContextId id, std::uint32_t to,
                               std::size_t tensors) {
  SendRpcBackward const* found = nullptr;
  for (auto const& node : worker.context_part(id)->sends()) {
    auto const& send = dynamic_cast<SendRpcBackward const&>(*node);
    if (send.to().value != to || send.num_inputs() != tensors) continue;
    REQUIRE(found == nullptr);
    found = &send;
  }
  REQUIRE(found != nullptr);
  return *found;
}

/// The only recv function of a worker's part that came from `from` with `tensors` tensors.
RecvRpcBackward const& recv_from(Worker const& worker, ContextId id, std::uint32_t from,
                                 std::size_t tensors) {
  RecvRpcBackward const* found = nullptr;
  for (auto const& node : worker.context_part(id)->recvs()) {
    auto const& recv = dynamic_cast<RecvRpcBackward const&>(*node);
    if (recv.from().value != from || recv.num_inputs() != tensors) continue;
    REQUIRE(found == nullptr);
    found = &recv;
  }
  REQUIRE(found != nullptr);
  CHECK(found->context() == id);
  return *found;
}

void check_counts(Worker const& worker, ContextId id, std::size_t sends, std::size_t recvs) {
  CAPTURE(worker.name());
  CHECK(worker.context_part(id)->sends().size() == sends);
  CHECK(worker.context_part(id)->recvs().size() == recvs);
}

void check_paired(SendRpcBackward const& send, RecvRpcBackward const& recv) {
  CHECK(send.id() == recv.id());
  CHECK(send.num_inputs() == recv.num_inputs());
}

/// `node`'s edges lead to the leaves `tensors`, in this order.
void check_leads_to_leaves(Node const& node, std::vector<at::Tensor> const& tensors) {
  REQUIRE(node.next_edges().size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    auto const& edge = node.next_edges()[i];
    CHECK(edge.input_nr == 0);
    auto* accumulator = as_leaf(*edge.function);
    REQUIRE(accumulator != nullptr);
    CHECK(accumulator->variable.is_same(tensors[i]));
  }
}

/// `node`'s edges lead to the inputs 0, 1, ... of `target`.
void check_leads_to(Node const& node, Node const& target) {
  REQUIRE(node.next_edges().size() == target.num_inputs());
  for (std::uint32_t i = 0; i < target.num_inputs(); ++i) {
    CHECK(node.next_edges()[i].function.get() == &target);
    CHECK(node.next_edges()[i].input_nr == i);
  }
}

/// `node`'s only edge leads to an addition, whose edges lead to `target`.
void check_leads_to_sum_of(Node const& node, Node const& target) {
  REQUIRE(node.next_edges().size() == 1);
  auto const& addition = *node.next_edges()[0].function;
  CHECK(addition.name() == "AddBackward0");
  check_leads_to(addition, target);
}

/// A call of an addition from worker 0 to worker 1, seen from both.
void check_addition(Workers const& w, ContextId id, at::Tensor const& x, at::Tensor const& y,
                    at::Tensor const& result) {
  check_counts(w[0], id, 1, 1);
  check_counts(w[1], id, 1, 1);
  auto const& request = send_to(w[0], id, 1, 2);
  auto const& arrived = recv_from(w[1], id, 0, 2);
  auto const& answer = send_to(w[1], id, 0, 1);
  auto const& result_arrived = recv_from(w[0], id, 1, 1);
  check_leads_to_leaves(request, {x, y});
  check_leads_to_sum_of(answer, arrived);
  CHECK(result.grad_fn().get() == &result_arrived);
  CHECK(result.output_nr() == 0);
  check_paired(request, arrived);
  check_paired(answer, result_arrived);
}

// --- one call ------------------------------------------------------------------------------------

template <auto F>
void one_call(Workers const& w, Mode mode) {
  for (auto layout : {Layout::dense, Layout::sparse}) {
    auto const x = leaf(1, layout), y = leaf(2, layout);
    auto ctx = w[0].context();
    auto const result = rig::run<F>(w[0], mode, "worker1", x, y);
    check_addition(w, ctx.id(), x, y, result);
  }
}

void one_function_call(Workers const& w) { one_call<shapes_add>(w, Mode::call); }
void one_lambda_call(Workers const& w) { one_call<shapes_add_lambda>(w, Mode::call); }
void one_remote_function(Workers const& w) { one_call<shapes_add>(w, Mode::remote); }
void one_remote_lambda(Workers const& w) { one_call<shapes_add_lambda>(w, Mode::remote); }

// --- nested calls --------------------------------------------------------------------------------

void three_hops(Workers const& w, Mode mode, Layout layout) {
  auto const x = leaf(1, layout), y = leaf(2, layout);
  auto ctx = w[0].context();
  auto const id = ctx.id();
  auto const result = rig::run<add_along>(w[0], mode, "worker1", x, y, std::vector<int>{2, 3},
                                          mode == Mode::remote);
  check_counts(w[0], id, 1, 1);
  check_counts(w[1], id, 2, 2);
  check_counts(w[2], id, 2, 2);
  check_counts(w[3], id, 1, 1);
  check_leads_to_leaves(send_to(w[0], id, 1, 2), {x, y});
  CHECK(result.grad_fn().get() == &recv_from(w[0], id, 1, 1));
  for (std::uint32_t hop : {1, 2}) {
    check_leads_to(send_to(w[hop], id, hop + 1, 2), recv_from(w[hop], id, hop - 1, 2));
    check_leads_to(send_to(w[hop], id, hop - 1, 1), recv_from(w[hop], id, hop + 1, 1));
  }
  check_leads_to_sum_of(send_to(w[3], id, 2, 1), recv_from(w[3], id, 2, 2));
  for (std::uint32_t hop : {0, 1, 2}) {
    check_paired(send_to(w[hop], id, hop + 1, 2), recv_from(w[hop + 1], id, hop, 2));
    check_paired(send_to(w[hop + 1], id, hop, 1), recv_from(w[hop], id, hop + 1, 1));
  }
}

void there_and_back(Workers const& w, Mode mode, Layout layout) {
  auto const x = leaf(1, layout), y = leaf(2, layout);
  auto ctx = w[0].context();
  auto const id = ctx.id();
  auto const result =
      rig::run<add_along>(w[0], mode, "worker1", x, y, std::vector<int>{0}, mode == Mode::remote);
  check_counts(w[0], id, 2, 2);
  check_counts(w[1], id, 2, 2);
  check_leads_to_leaves(send_to(w[0], id, 1, 2), {x, y});
  check_leads_to_sum_of(send_to(w[0], id, 1, 1), recv_from(w[0], id, 1, 2));
  CHECK(result.grad_fn().get() == &recv_from(w[0], id, 1, 1));
  check_leads_to(send_to(w[1], id, 0, 2), recv_from(w[1], id, 0, 2));
  check_leads_to(send_to(w[1], id, 0, 1), recv_from(w[1], id, 0, 1));
}

// --- nothing to differentiate --------------------------------------------------------------------

void no_gradients(Workers const& w, Mode mode) {
  for (auto layout : {Layout::dense, Layout::sparse}) {
    auto const x = leaf(1, layout).detach(), y = leaf(2, layout).detach();
    auto ctx = w[0].context();
    CHECK_FALSE(rig::run<shapes_add>(w[0], mode, "worker1", x, y).requires_grad());
    check_counts(w[0], ctx.id(), 0, 0);
    REQUIRE(w[1].has_context(ctx.id()));  // only the callee could know that nothing needs it
    check_counts(w[1], ctx.id(), 0, 0);
  }
}

// --- a leaf of the callee ------------------------------------------------------------------------

at::Tensor shapes_own_leaf() { return leaf(7); }

void own_leaf(Workers const& w, Mode mode) {
  auto ctx = w[0].context();
  auto const result = rig::run<shapes_own_leaf>(w[0], mode, "worker1");
  check_counts(w[0], ctx.id(), 0, 1);
  check_counts(w[1], ctx.id(), 1, 0);
  ctx.backward({result.sum()});
  CHECK(ctx.gradients().empty());
  auto const there = w[1].context_part(ctx.id())->gradients();
  REQUIRE(there.size() == 1);
  CHECK(rig::same(there[0].variable, leaf(7)));
  CHECK(rig::same(there[0].gradient, at::ones({3, 3})));
}

// --- lists ---------------------------------------------------------------------------------------

at::Tensor add_all(std::vector<at::Tensor> const& tensors) {
  auto sum = tensors.at(0);
  for (std::size_t i = 1; i < tensors.size(); ++i) sum = sum.add(tensors[i]);
  return sum;
}

void list_argument(Workers const& w, Mode mode) {
  for (auto layout : {Layout::dense, Layout::sparse}) {
    std::vector<at::Tensor> all, leaves;
    for (int i = 0; i < 10; ++i) {
      all.push_back(i % 2 ? leaf(i, layout).detach() : leaf(i, layout));
      if (i % 2 == 0) leaves.push_back(all.back());
    }
    auto ctx = w[0].context();
    auto const result = rig::run<add_all>(w[0], mode, "worker1", all);
    check_counts(w[0], ctx.id(), 1, 1);
    check_leads_to_leaves(send_to(w[0], ctx.id(), 1, 5), leaves);
    CHECK(ctx.known_workers() == std::set<WorkerId>{WorkerId{1}});
    auto const g = rig::ones_for(result);
    ctx.backward({result}, {.gradients = {g}});
    rig::check_gradients(ctx, add_all(all), leaves, g);
    CHECK(ctx.gradients().size() == 5);
  }
}

template <Mode mode>
void three_hops_of_both(Workers const& w) {
  for (auto layout : {Layout::dense, Layout::sparse}) three_hops(w, mode, layout);
}
template <Mode mode>
void there_and_back_of_both(Workers const& w) {
  for (auto layout : {Layout::dense, Layout::sparse}) there_and_back(w, mode, layout);
}

}  // namespace

TEST_CASE_TEMPLATE("[DA-01] a call joins the graphs of caller and callee", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(one_function_call);
}
TEST_CASE_TEMPLATE("[DA-02] a call of a lambda joins both graphs", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(one_lambda_call);
}
TEST_CASE_TEMPLATE("[DA-03] a remote value that is fetched joins both graphs", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(one_remote_function);
}
TEST_CASE_TEMPLATE("[DA-04] the remote value of a lambda joins both graphs", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(one_remote_lambda);
}
TEST_CASE_TEMPLATE("[DA-05] workers in the middle of a nested call pass tensors on", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(three_hops_of_both<Mode::call>);
}
TEST_CASE_TEMPLATE("[DA-06] workers in the middle of nested remote values pass tensors on", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(three_hops_of_both<Mode::remote>);
}
TEST_CASE_TEMPLATE("[DA-07] a nested call back to its origin is recorded on both sides", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(there_and_back_of_both<Mode::call>);
}
TEST_CASE_TEMPLATE("[DA-08] a nested remote value on its origin is recorded on both sides", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(there_and_back_of_both<Mode::remote>);
}
TEST_CASE_TEMPLATE("[DA-09] a call with nothing to differentiate only carries the context", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { no_gradients(w, Mode::call); });
}
TEST_CASE_TEMPLATE("[DA-10] a fetch with nothing to differentiate only carries the context", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { no_gradients(w, Mode::remote); });
}
TEST_CASE_TEMPLATE("[DA-11] a leaf that the callee returns gets its gradient there", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { own_leaf(w, Mode::call); });
}
TEST_CASE_TEMPLATE("[DA-12] a remote leaf that is fetched gets its gradient there", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { own_leaf(w, Mode::remote); });
}
TEST_CASE_TEMPLATE("[DA-13] of a list's tensors those that require gradients are recorded", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { list_argument(w, Mode::call); });
}
TEST_CASE_TEMPLATE("[DA-14] of a list for a remote value those that require gradients are recorded",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { list_argument(w, Mode::remote); });
}

}  // namespace graph_shapes_tests
