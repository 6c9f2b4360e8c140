#pragma once
// Graphs with tensors of every kind, cut in three: what is before a call, the function that is
// called, and what is after it.

#include "workers.hpp"

#include <functional>
#include <string>

#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/split.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

namespace rig::kinds {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(Tensors const&)>;

inline at::Tensor values(at::IntArrayRef sizes, int seed, at::ScalarType type = at::kFloat) {
  std::int64_t count = 1;
  for (auto size : sizes) count *= size;
  return at::arange(count, at::kDouble).mul(1.3).add(seed).sin().reshape(sizes).to(type);
}
inline at::Tensor leaf_of(at::IntArrayRef sizes, int seed, at::ScalarType type = at::kFloat) {
  return values(sizes, seed, type).set_requires_grad(true);
}
inline at::Tensor complex_leaf(int seed) {
  return at::complex(values({3, 3}, seed), values({3, 3}, seed + 10)).set_requires_grad(true);
}
inline at::Tensor indices(std::initializer_list<std::int64_t> list) {
  auto all = at::zeros({std::int64_t(list.size())}, at::kLong);
  std::int64_t at = 0;
  for (auto index : list) all.data_ptr<std::int64_t>()[at++] = index;
  return all;
}

/// What of the graph is on this worker before the call, on the other, and on this one after it.
struct Kind {
  std::string name;
  std::function<Tensors()> leaves;
  Function before, there, after;
};
inline Tensors nothing(Tensors const& in) { return in; }

/// The roots need no gradients of their own if each is made a scalar.
inline Tensors sums(Tensors const& in) {
  Tensors roots;
  for (auto const& tensor : in) {
    if (!tensor.requires_grad()) continue;
    auto const dense = tensor.is_sparse() ? tensor.to_dense() : tensor;
    auto const real = dense.is_complex() ? at::view_as_real(dense.resolve_conj()) : dense;
    roots.push_back(real.mul(values(real.sizes(), 5, real.scalar_type())).sum());
  }
  return roots;
}

// --- custom functions ----------------------------------------------------------------------------

/// Two outputs of which the second has no gradient, one input whose gradient stays undefined.
struct Picky : torch::autograd::Function<Picky> {
  static variable_list forward(AutogradContext* context, at::Tensor x, at::Tensor y) {
    auto const order = x.argsort();
    context->mark_non_differentiable({order});
    context->save_for_backward({y});
    return {x.mul(y), order};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {gradients[0].mul(context->get_saved_variables()[0]), at::Tensor()};
  }
};

/// Sees undefined gradients instead of zeros.
struct Bare : torch::autograd::Function<Bare> {
  static variable_list forward(AutogradContext* context, at::Tensor x, at::Tensor y) {
    context->set_materialize_grads(false);
    return {x.mul(2), y.mul(3)};
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    auto const times = [](at::Tensor const& gradient, int factor) {
      return gradient.defined() ? gradient.mul(factor) : gradient;
    };
    return {times(gradients[0], 2), times(gradients[1], 3)};
  }
};

/// Runs its function again in backward, and libtorch's engine inside of the pass.
struct Recomputing : torch::autograd::Function<Recomputing> {
  static at::Tensor body(at::Tensor const& x) { return x.matmul(x).tanh(); }
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return body(x);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto const x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    at::AutoGradMode const recording(true);
    torch::autograd::backward({body(x)}, {gradients[0]});
    return {x.grad()};
  }
};

// --- the kinds -----------------------------------------------------------------------------------

inline Kind simple(std::string name, std::function<Tensors()> leaves, Function there) {
  return {std::move(name), std::move(leaves), nothing, std::move(there), sums};
}

inline std::vector<Kind> numbers() {
  std::vector<Kind> all;
  for (auto type : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    all.push_back(simple(
        c10::toString(type),
        [type] {
          return Tensors{leaf_of({3, 3}, 1, type), leaf_of({3, 3}, 2, type)};
        },
        [](auto& in) {
          return Tensors{in[0].mul(in[1]), in[1].add(in[0])};
        }));
  }
  all.push_back(simple(
      "float32 beside float64, converted there",
      [] {
        return Tensors{leaf_of({3, 3}, 1), leaf_of({3, 3}, 2, at::kDouble)};
      },
      [](auto& in) {
        return Tensors{in[0].mul(in[1]), in[0].to(at::kBFloat16)};
      }));
  all.push_back(simple(
      "complex",
      [] {
        return Tensors{complex_leaf(1), complex_leaf(2)};
      },
      [](auto& in) { return Tensors{in[0].mul(in[1])}; }));
  all.push_back(simple(
      "lazy conjugates, sent and returned", [] { return Tensors{complex_leaf(1)}; },
      [](auto& in) {
        return Tensors{in[0].conj(), in[0].conj().mul(in[0])};
      }));
  all.push_back({"lazy conjugates and negatives as arguments",
                 [] { return Tensors{complex_leaf(1)}; },
                 [](auto& in) {
                   return Tensors{in[0].conj(), at::imag(in[0].conj())};
                 },
                 [](auto& in) { return Tensors{in[0].mul(in[1])}; }, sums});
  all.push_back(simple(
      "a real leaf with complex results",
      [] {
        return Tensors{leaf_of({3, 2}, 1), complex_leaf(2)};
      },
      [](auto& in) {
        return Tensors{at::view_as_complex(in[0]).mul(at::view_as_complex(in[0])),
                       in[1].abs().mul(in[0].sum())};
      }));
  return all;
}

inline std::vector<Kind> shapes() {
  return {simple(
              "0-dim tensors",
              [] {
                return Tensors{leaf_of({}, 1), leaf_of({}, 2)};
              },
              [](auto& in) { return Tensors{in[0].mul(in[1])}; }),
          simple(
              "a 0-dim tensor beside a matrix",
              [] {
                return Tensors{leaf_of({}, 1), leaf_of({3, 3}, 2)};
              },
              [](auto& in) { return Tensors{in[0].mul(in[1])}; }),
          simple(
              "empty tensors",
              [] {
                return Tensors{leaf_of({0, 3}, 1), leaf_of({2, 3}, 2)};
              },
              [](auto& in) {
                return Tensors{at::cat({in[0], in[1]}), in[0].mul(2)};
              }),
          simple(
              "broadcast dimensions",
              [] {
                return Tensors{leaf_of({3}, 1), leaf_of({2, 1, 3}, 2), leaf_of({4, 1}, 3)};
              },
              [](auto& in) { return Tensors{in[0].mul(in[1]).add(in[2])}; }),
          simple(
              "a gradient that is expanded",
              [] {
                return Tensors{leaf_of({3, 4}, 1)};
              },
              [](auto& in) {
                return Tensors{in[0].sum(), in[0].sum(1)};
              }),
          simple(
              "a leaf that is not contiguous",
              [] {
                return Tensors{values({4, 3}, 1).t().set_requires_grad(true),
                               values({2, 3, 4, 4}, 2)
                                   .contiguous(at::MemoryFormat::ChannelsLast)
                                   .set_requires_grad(true)};
              },
              [](auto& in) {
                return Tensors{in[0].mul(2), in[1].mul(3)};
              }),
          {"views before and after the call",
           [] {
             return Tensors{leaf_of({4, 6}, 1)};
           },
           [](auto& in) {
             return Tensors{in[0].t(), in[0].narrow(1, 1, 3), in[0].select(0, 2),
                            in[0][0].expand({3, 6})};
           },
           [](auto& in) {
             return Tensors{in[0].mul(2).t(), in[1].mul(3), in[2].mul(in[3])};
           },
           [](auto& in) {
             return sums({in[0].slice(0, 0, 4, 2), in[1].diagonal(), in[2].flip(1)});
           }},
          simple(
              "one tensor twice in a message, and views of one tensor",
              [] {
                return Tensors{leaf_of({4, 3}, 1)};
              },
              [](auto& in) {
                auto const twice = in[0].mul(2);
                return Tensors{twice, twice, twice.select(0, 1), in[0]};
              }),
          {"in place after receiving, here and there",
           [] {
             return Tensors{leaf_of({3, 3}, 1), leaf_of({3, 3}, 2)};
           },
           [](auto& in) {
             return Tensors{in[0].mul(1), in[1]};
           },
           [](auto& in) {
             auto x = in[0];
             x.mul_(in[1]);
             x.select(0, 1).zero_();
             return Tensors{x, in[1].mul(2)};
           },
           [](auto& in) {
             auto first = in[0], second = in[1];
             first.add_(second);
             second.mul_(2);
             first.narrow(1, 0, 1).mul_(3);
             return sums({first, second});
           }}};
}

inline std::vector<Kind> outputs() {
  return {
      simple(
          "integer outputs",
          [] {
            return Tensors{leaf_of({4, 5}, 1)};
          },
          [](auto& in) {
            auto const [largest, where] = in[0].max(1);
            return Tensors{largest, where, in[0].gt(0), in[0].detach()};
          }),
      {"indices that were returned",
       [] {
         return Tensors{leaf_of({4, 5}, 1)};
       },
       nothing,
       [](auto& in) {
         auto const [sorted, order] = in[0].sort(1);
         return Tensors{sorted, order};
       },
       [](auto& in) { return sums({in[0].gather(1, in[1])}); }},
      {"outputs that are not used",
       [] {
         return Tensors{leaf_of({6, 4}, 1)};
       },
       nothing, [](auto& in) { return in[0].split(2); }, [](auto& in) { return sums({in[1]}); }},
      {"an output that is only used detached",
       [] {
         return Tensors{leaf(1), leaf(2)};
       },
       nothing,
       [](auto& in) {
         return Tensors{in[0].mul(in[1]), in[1].exp()};
       },
       [](auto& in) { return sums({in[0].mul(in[1].detach())}); }},
      {"a custom function",
       [] {
         return Tensors{leaf_of({8}, 1), leaf_of({8}, 2)};
       },
       nothing, [](auto& in) { return Tensors(Picky::apply(in[0], in[1])); }, sums},
      {"undefined gradients in backward",
       [] {
         return Tensors{leaf(1), leaf(2)};
       },
       nothing, [](auto& in) { return Tensors(Bare::apply(in[0], in[1])); },
       [](auto& in) { return sums({in[1]}); }},
      simple(
          "a node that recomputes", [] { return Tensors{leaf(1)}; },
          [](auto& in) { return Tensors{Recomputing::apply(in[0].mul(2)).mul(in[0])}; })};
}

inline std::vector<Kind> sparse() {
  auto const table = [] { return Tensors{leaf_of({10, 2}, 1)}; };
  auto const look_up = [](at::Tensor const& weight) {
    return at::embedding(weight, indices({1, 7, 1}), -1, false, true);
  };
  auto const bags = [](at::Tensor const& weight) {
    return std::get<0>(at::embedding_bag(weight, indices({0, 3, 3, 9}), indices({0, 2}), false, 0,
                                         /*sparse=*/true));
  };
  return {
      simple(
          "a sparse leaf",
          [] {
            return Tensors{leaf(1, rig::Layout::sparse), leaf(2, rig::Layout::sparse)};
          },
          [](auto& in) { return Tensors{in[0].add(in[1]).add(in[0])}; }),
      simple("a sparse gradient of an embedding", table,
             [=](auto& in) { return Tensors{look_up(in[0])}; }),
      simple("a sparse gradient of bags", table, [=](auto& in) { return Tensors{bags(in[0])}; }),
      simple("two sparse gradients", table,
             [=](auto& in) {
               return Tensors{look_up(in[0]), bags(in[0])};
             }),
      simple("a sparse and a dense gradient, added there", table,
             [=](auto& in) {
               return Tensors{look_up(in[0]), in[0].tanh()};
             }),
      {"a sparse gradient from there, a dense one from here", table,
       [](auto& in) {
         return Tensors{in[0], in[0].exp()};
       },
       [=](auto& in) {
         return Tensors{look_up(in[0]), in[1]};
       },
       sums},
      {"sparse gradients from there, used here before and after", table, nothing,
       [=](auto& in) {
         return Tensors{look_up(in[0]), in[0].alias()};
       },
       [=](auto& in) {
         return sums({in[0], bags(in[1])});
       }}};
}

}  // namespace rig::kinds
