// Derivatives of derivatives through other workers: the gradient messages of a pass with
// create_graph are themselves calls that can be differentiated. Oracle: the uncut graph, float64.
#include "workers.hpp"

#include <functional>
#include <stdexcept>
#include <string>

#include "kept.hpp"
#include "reports.hpp"

#include <torch/csrc/autograd/custom_function.h>

namespace second_order_tests {

using namespace distgrad;
using rig::Mode;
using rig::Workers;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor leaf(int seed) {
  auto const values = at::arange(9, at::kDouble).mul(0.31).add(seed).sin();
  return values.reshape({3, 3}).set_requires_grad(true);
}

at::Tensor second_p1, second_p2;  // parameters of workers 1 and 2

// --- graphs --------------------------------------------------------------------------------------

at::Tensor second_one_hop(at::Tensor const& x) { return x.matmul(second_p1).tanh().mul(x.exp()); }

/// The same function with its calls or without them.
template <bool Remote>
struct Nested {
  static at::Tensor innermost(at::Tensor const& x) { return x.mul(second_p2).sigmoid().mul(x); }
  static at::Tensor middle(at::Tensor const& x) {
    return call<innermost>("worker3", x.matmul(second_p2)).mul(second_p2);
  }
  static at::Tensor outer(at::Tensor const& x) {
    return call<middle>("worker2", x.tanh().matmul(second_p1)).mul(x).mul(second_p1);
  }
  template <auto F>
  static at::Tensor call(char const* to, at::Tensor const& x) {
    if constexpr (Remote) {
      return this_worker().rpc_sync<F>(to, x);
    } else {
      return F(x);
    }
  }
};

at::Tensor second_at_home;  // a leaf of worker 0

template <bool Remote>
struct Cycle {
  static at::Tensor home(at::Tensor const& x) { return x.mul(second_at_home).sin(); }
  static at::Tensor away(at::Tensor const& x) {
    auto const value = x.matmul(second_p1);
    if constexpr (Remote) {
      return this_worker().rpc_sync<home>("worker0", value).mul(x).mul(second_p1);
    } else {
      return home(value).mul(x).mul(second_p1);
    }
  }
};

struct Graph {
  std::string name;
  std::function<at::Tensor(Workers const&, at::Tensor const&)> remote;
  std::function<at::Tensor(at::Tensor const&)> local;
};

std::vector<Graph> graphs() {
  return {
      {"one hop",
       [](auto& w, auto& x) { return w[0].template rpc_sync<second_one_hop>("worker1", x); },
       second_one_hop},
      {"one hop, fetched",
       [](auto& w, auto& x) {
         return w[0].template remote<second_one_hop>("worker1", x).to_here();
       },
       second_one_hop},
      {"a call to itself",
       [](auto& w, auto& x) { return w[0].template rpc_sync<second_one_hop>("worker0", x); },
       second_one_hop},
      {"three hops",
       [](auto& w, auto& x) { return w[0].template rpc_sync<Nested<true>::outer>("worker1", x); },
       Nested<false>::outer},
      {"to another worker and back",
       [](auto& w, auto& x) { return w[0].template rpc_sync<Cycle<true>::away>("worker1", x); },
       Cycle<false>::away},
      {"two calls, one after the other",
       [](auto& w, auto& x) {
         auto const y = w[0].template rpc_sync<second_one_hop>("worker1", x);
         return w[0].template rpc_sync<second_one_hop>("worker1", y.mul(x)).mul(y);
       },
       [](auto& x) {
         auto const y = second_one_hop(x);
         return second_one_hop(y.mul(x)).mul(y);
       }}};
}

/// Fresh leaves everywhere, without gradients.
at::Tensor fresh() {
  second_p1 = rig::kept(leaf(2));
  second_p2 = rig::kept(leaf(3));
  second_at_home = rig::kept(leaf(4));
  return leaf(1);
}

/// The gradients of x and of all parameters, by the owners' parts of the context.
Tensors stored(Workers const& w, Context const& ctx, at::Tensor const& x) {
  Tensors found;
  for (auto const& variable : {x, second_p1, second_p2, second_at_home}) {
    at::Tensor gradient;
    for (std::size_t rank = 0; rank < w.size(); ++rank) {
      if (!w[rank].has_context(ctx.id())) continue;
      auto const part = w[rank].context_part(ctx.id())->gradient(variable);
      if (!part.defined()) continue;
      // In one process a parameter has one owner only where one worker's functions use it.
      gradient = gradient.defined() ? gradient.add(part) : part;
    }
    found.push_back(gradient);
  }
  return found;
}
Tensors accumulated(at::Tensor const& x) {
  return {x.grad(), second_p1.grad(), second_p2.grad(), second_at_home.grad()};
}

void check_same(Tensors const& got, Tensors const& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CAPTURE(i);
    REQUIRE(got[i].defined() == wanted[i].defined());
    if (got[i].defined()) CHECK(got[i].allclose(wanted[i], 1e-12, 1e-14));
  }
}

template <class Body>
void for_each_graph(Workers const& w, Body body) {
  for (auto const& graph : graphs()) {
    CAPTURE(graph.name);
    body(w, graph);
  }
}

// --- grad ----------------------------------------------------------------------------------------

/// A loss and a penalty on the length of its gradient.
void gradient_penalty(Workers const& w, Graph const& graph) {
  auto x = fresh();
  auto const local = graph.local(x);
  auto const slope = torch::autograd::grad({local.sum()}, {x}, {}, true, true)[0];
  torch::autograd::backward({local.sum().add(slope.pow(2).sum().mul(0.1))}, {});
  auto const expected = accumulated(x);

  x = fresh();
  auto ctx = w[0].context();
  auto const y = graph.remote(w, x);
  auto const g = ctx.grad({y.sum()}, {x}, {.create_graph = true})[0];
  CHECK(g.requires_grad());
  CHECK(g.allclose(slope, 1e-12, 1e-14));
  CHECK(ctx.gradients().empty());
  ctx.backward({y.sum().add(g.pow(2).sum().mul(0.1))});
  check_same(stored(w, ctx, x), expected);
}

void hessian_vector_product(Workers const& w, Graph const& graph) {
  auto const v = leaf(7).detach(), u = leaf(8).detach();
  auto x = fresh();
  auto const slope = torch::autograd::grad({graph.local(x)}, {x}, {u}, true, true)[0];
  auto const expected = torch::autograd::grad({slope}, {x}, {v})[0];
  x = fresh();
  auto ctx = w[0].context();
  auto const g = ctx.grad({graph.remote(w, x)}, {x}, {.create_graph = true, .gradients = {u}})[0];
  auto const product = ctx.grad({g}, {x}, {.gradients = {v}})[0];
  CHECK(product.allclose(expected, 1e-12, 1e-14));
  CHECK_FALSE(product.requires_grad());
}

void third_derivative(Workers const& w, Graph const& graph) {
  auto x = fresh();
  auto const first = torch::autograd::grad({graph.local(x).sum()}, {x}, {}, true, true)[0];
  auto const second = torch::autograd::grad({first.pow(2).sum()}, {x}, {}, true, true)[0];
  torch::autograd::backward({second.mul(first).sum()}, {});
  auto const expected = accumulated(x);
  x = fresh();
  auto ctx = w[0].context();
  auto const g = ctx.grad({graph.remote(w, x).sum()}, {x}, {.create_graph = true})[0];
  auto const h = ctx.grad({g.pow(2).sum()}, {x}, {.create_graph = true})[0];
  CHECK(h.allclose(second, 1e-11, 1e-13));
  ctx.backward({h.mul(g).sum()});
  check_same(stored(w, ctx, x), expected);
}

// --- backward ------------------------------------------------------------------------------------

/// The first pass stores gradients with a graph, the second adds those of a function of them.
void through_the_context(Workers const& w, Graph const& graph) {
  auto x = fresh();
  // Not through .grad, which libtorch would let refer to itself.
  auto const leaves = Tensors{x, second_p1, second_p2, second_at_home};
  auto const first = torch::autograd::grad({graph.local(x).sum()}, leaves, {}, true, true, true);
  auto const second =
      torch::autograd::grad({first[0].pow(2).sum()}, leaves, {}, false, false, true);
  Tensors expected;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    expected.push_back(second[i].defined() ? first[i].add(second[i]) : first[i]);
  }
  x = fresh();
  auto ctx = w[0].context();
  ctx.backward({graph.remote(w, x).sum()}, {.create_graph = true});
  auto const g = ctx.gradient(x);
  REQUIRE(g.requires_grad());
  CHECK(g.allclose(first[0], 1e-12, 1e-14));
  ctx.backward({g.pow(2).sum()});
  check_same(stored(w, ctx, x), expected);
}

void through_grad(Workers const& w, Graph const& graph) {
  auto x = fresh();
  auto const slope = torch::autograd::grad({graph.local(x).sum()}, {x}, {}, true, true)[0];
  torch::autograd::backward({slope.pow(2).sum()}, {});
  auto const expected = accumulated(x);
  x = fresh();
  auto ctx = w[0].context();
  ctx.backward({graph.remote(w, x).sum()},
               {.create_graph = true, .inputs = {x}, .accumulate_grad = true});
  auto const g = x.grad();
  REQUIRE(g.requires_grad());
  x.mutable_grad() = at::Tensor();
  ctx.backward({g.pow(2).sum()}, {.accumulate_grad = true});
  CHECK(ctx.gradients().empty());
  check_same(accumulated(x), expected);
}

// --- what may go wrong ---------------------------------------------------------------------------

void without_create_graph(Workers const& w) {
  auto const x = fresh();
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<second_one_hop>("worker1", x).sum();
  auto const g = ctx.grad({y}, {x}, {.retain_graph = true})[0];
  CHECK_FALSE(g.requires_grad());
  CHECK((rig::error_of([&] { ctx.backward({g.sum()}); }) == errc::invalid_root));
  ctx.grad({y}, {x}, {.create_graph = true});  // a graph that is not used
  ctx.backward({y});
  CHECK(ctx.gradient(x).allclose(g));
}

/// Its gradient can be computed, but not differentiated.
struct OnceOnly : torch::autograd::Function<OnceOnly> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return x.mul(x);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    if (gradients[0].sum().item<double>() < 0) throw std::runtime_error("only once");
    return {gradients[0].mul(context->get_saved_variables()[0]).mul(2)};
  }
};
at::Tensor second_once_only(at::Tensor const& x) { return OnceOnly::apply(x); }

// A pass over the graph of gradients fails like any other, and the next one is clean.
void failing_second_order(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<second_once_only>("worker1", x);
  auto const g = ctx.grad({y.sum()}, {x}, {.create_graph = true})[0];
  CHECK(g.allclose(x.mul(2)));
  auto const report = rig::report_of(ctx, y.sum().mul(-1).add(g.sum()), {.retain_graph = true});
  CHECK(report.worker == "worker1");
  CHECK(rig::mentions(report.node, "OnceOnly"));
  CHECK(rig::mentions(report.text, "only once"));
  CHECK_FALSE(ctx.gradient(x).defined());
  ctx.backward({y.sum().add(g.sum())});
  CHECK(ctx.gradient(x).allclose(x.mul(2).add(2)));
}

}  // namespace

TEST_CASE_TEMPLATE("a penalty on gradients through other workers equals the local one", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { for_each_graph(w, gradient_penalty); });
}
TEST_CASE_TEMPLATE("a Hessian-vector product through other workers equals the local one", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { for_each_graph(w, hessian_vector_product); });
}
TEST_CASE_TEMPLATE("third derivatives through other workers equal the local ones", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { for_each_graph(w, third_derivative); });
}
TEST_CASE_TEMPLATE("gradients in a context have a graph when they were made with one", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { for_each_graph(w, through_the_context); });
}
TEST_CASE_TEMPLATE("gradients in .grad have a graph when they were made with one", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { for_each_graph(w, through_grad); });
}
TEST_CASE_TEMPLATE("gradients without a graph cannot be differentiated", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(without_create_graph);
}
TEST_CASE_TEMPLATE("an error in second derivatives names its worker, and leaves nothing behind",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(failing_second_order);
}

}  // namespace second_order_tests
