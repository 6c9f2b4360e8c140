#pragma once
// The operations random graphs are made of. Each is kept as a function and as its own text, so that
// a printed program computes what the test did.

#include <distgrad/distgrad.hpp>

#include <torch/csrc/autograd/custom_function.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace random_graphs {

using Tensors = std::vector<at::Tensor>;
using Numbers = std::vector<std::int64_t>;

/// How far an operation's results can be differentiated.
enum class Smooth { once, twice };
/// Whether an operation may change its operands and their hooks: it gets copies where another would
/// see that. A tensor that came from another worker is a copy already.
enum class Operands { shared, own };

struct Operation {
  std::string_view name;
  Smooth smooth;
  Operands operands;
  std::string_view text;
  Tensors (*run)(Tensors const& x, Numbers const& n);
};

// Values stay within [-1, 1], so that tolerances mean something.
#define RANDOM_GRAPH_OPERATION(name, smooth, operands, ...)                                        \
  inline constexpr Operation name {                                                                \
    #name, Smooth::smooth, Operands::operands, #__VA_ARGS__, [                                     \
    ]([[maybe_unused]] Tensors const& x, [[maybe_unused]] Numbers const& n) -> Tensors __VA_ARGS__ \
  }

// clang-format off
namespace operations {

// --- leaves: number, rows, columns, requires_grad ---

RANDOM_GRAPH_OPERATION(leaf, twice, shared, {
  auto const values = at::arange(n[1] * n[2], at::kDouble).add(double(n[0])).sin();
  return {values.reshape({n[1], n[2]}).set_requires_grad(n[3] != 0)};
});
RANDOM_GRAPH_OPERATION(hooked_leaf, twice, shared, {
  auto const values = at::arange(n[1] * n[2], at::kDouble).add(double(n[0])).sin();
  auto const result = values.reshape({n[1], n[2]}).set_requires_grad(true);
  result.register_hook([](at::Tensor const& g) { return g.defined() ? g.mul(-0.5) : g; });
  return {result};
});
RANDOM_GRAPH_OPERATION(sparse_leaf, once, shared, {
  auto const values = at::arange(n[1] * n[2], at::kDouble).add(double(n[0])).sin();
  return {values.reshape({n[1], n[2]}).relu().to_sparse().set_requires_grad(n[3] != 0)};
});

// --- one operand ---

RANDOM_GRAPH_OPERATION(tanh, twice, shared, { return {x[0].tanh()}; });
RANDOM_GRAPH_OPERATION(sigmoid, twice, shared, { return {x[0].sigmoid()}; });
RANDOM_GRAPH_OPERATION(sin, twice, shared, { return {x[0].sin()}; });
RANDOM_GRAPH_OPERATION(scale, twice, shared, { return {x[0].mul(-0.75)}; });
RANDOM_GRAPH_OPERATION(turn, twice, shared, { return {x[0].t()}; });
RANDOM_GRAPH_OPERATION(detached, twice, shared, { return {x[0].detach().cos()}; });
RANDOM_GRAPH_OPERATION(sum, twice, shared, { return {x[0].sum(n[0], true).tanh()}; });
RANDOM_GRAPH_OPERATION(mean, twice, shared, { return {x[0].mean(n[0], true)}; });
RANDOM_GRAPH_OPERATION(slice, twice, shared, { return {x[0].narrow(n[0], n[1], n[2])}; });
RANDOM_GRAPH_OPERATION(split, twice, shared, { return x[0].split(n[1], n[0]); });
RANDOM_GRAPH_OPERATION(sorted, twice, shared, {
  auto const [values, indices] = x[0].sort(n[0]);
  return {values, indices};
});

// --- several operands ---

RANDOM_GRAPH_OPERATION(add, twice, shared, { return {x[0].add(x[1]).mul(0.5)}; });
RANDOM_GRAPH_OPERATION(sub, twice, shared, { return {x[0].sub(x[1]).mul(0.5)}; });
RANDOM_GRAPH_OPERATION(mul, twice, shared, { return {x[0].mul(x[1])}; });
RANDOM_GRAPH_OPERATION(matmul, twice, shared, { return {x[0].mm(x[1]).tanh()}; });
RANDOM_GRAPH_OPERATION(stack, twice, shared, { return {at::stack(x).flatten(0, 1)}; });
RANDOM_GRAPH_OPERATION(repeated, twice, shared, {
  return {x[0].mul(x[0]).add(x[1]).mul(x[0]).mul(0.5)};
});
/// Each result has an operand of its own: one may be used while the other is not.
RANDOM_GRAPH_OPERATION(pair, twice, shared, { return {x[0].sin(), x[1].tanh()}; });
RANDOM_GRAPH_OPERATION(mix, twice, shared, {
  struct Mix : torch::autograd::Function<Mix> {
    using Saved = torch::autograd::AutogradContext;
    static Tensors forward(Saved* saved, at::Tensor const& a, at::Tensor const& b) {
      saved->save_for_backward({a, b});
      return {a.mul(b), a.sub(b).mul(0.5)};
    }
    static Tensors backward(Saved* saved, Tensors const& g) {
      auto const v = saved->get_saved_variables();
      auto const half = g[1].mul(0.5);
      return {g[0].mul(v[1]).add(half), g[0].mul(v[0]).sub(half)};
    }
  };
  return Mix::apply(x[0], x[1]);
});

// --- hooks ---

RANDOM_GRAPH_OPERATION(hook_result, twice, shared, {
  auto const y = x[0].sin();
  if (y.requires_grad()) {
    y.register_hook([](at::Tensor const& g) { return g.defined() ? g.mul(0.5) : g; });
  }
  return {y};
});
RANDOM_GRAPH_OPERATION(hook_operand, twice, own, {
  if (x[0].requires_grad()) {
    x[0].register_hook([](at::Tensor const& g) { return g.defined() ? g.mul(-1.5) : g; });
  }
  return {x[0].tanh()};
});

// --- in place, views ---
//
// None changes a view by an operation that saves its result, such as tanh_: once the view is gone,
// libtorch lets that operation's node stand for it in second derivatives, beside the CopySlices
// that calls the same node. Whichever runs last finds it released; libtorch's own order happens to
// be the right one.

RANDOM_GRAPH_OPERATION(in_place, twice, shared, {
  auto y = x[0].mul(0.5);
  y.add_(x[1], 0.5).mul_(x[0]);
  return {y};
});
RANDOM_GRAPH_OPERATION(in_place_on_view, twice, shared, {
  auto y = x[0].sin();
  y.narrow(n[0], n[1], n[2]).mul_(x[1].narrow(n[0], n[1], n[2])).sin_();
  return {y};
});
RANDOM_GRAPH_OPERATION(in_place_on_base, twice, shared, {
  auto y = x[0].sin();
  auto const view = y.t();
  y.tanh_();
  return {view, y};
});
RANDOM_GRAPH_OPERATION(in_place_on_operand, twice, own, {
  auto y = x[0];
  y.sin_().mul_(x[1]);
  return {y};
});
RANDOM_GRAPH_OPERATION(in_place_on_view_of_operand, twice, own, {
  x[0].narrow(n[0], n[1], n[2]).sin_();
  return {x[0]};
});

// --- sparse ---

/// Rows of a table, which gets a sparse gradient: it has to be a leaf.
RANDOM_GRAPH_OPERATION(lookup, once, shared, {
  return {at::embedding(x[0], at::tensor(n), -1, false, true).sin()};
});
RANDOM_GRAPH_OPERATION(scale_sparse, once, shared, { return {x[0].mul(-0.75)}; });
RANDOM_GRAPH_OPERATION(add_sparse, once, shared, { return {x[0].add(x[1], 0.5).mul(0.5)}; });
RANDOM_GRAPH_OPERATION(densify, once, shared, { return {x[0].to_dense().tanh()}; });

}  // namespace operations
// clang-format on

#undef RANDOM_GRAPH_OPERATION

inline constexpr std::array all_operations = {
    &operations::leaf,
    &operations::hooked_leaf,
    &operations::sparse_leaf,
    &operations::tanh,
    &operations::sigmoid,
    &operations::sin,
    &operations::scale,
    &operations::turn,
    &operations::detached,
    &operations::sum,
    &operations::mean,
    &operations::slice,
    &operations::split,
    &operations::sorted,
    &operations::add,
    &operations::sub,
    &operations::mul,
    &operations::matmul,
    &operations::stack,
    &operations::repeated,
    &operations::pair,
    &operations::mix,
    &operations::hook_result,
    &operations::hook_operand,
    &operations::in_place,
    &operations::in_place_on_view,
    &operations::in_place_on_base,
    &operations::in_place_on_operand,
    &operations::in_place_on_view_of_operand,
    &operations::lookup,
    &operations::scale_sparse,
    &operations::add_sparse,
    &operations::densify,
};

}  // namespace random_graphs
