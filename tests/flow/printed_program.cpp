// Seed 0 of tests/flow/random_graphs.cpp.
#include <distgrad/distgrad.hpp>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ATen/ATen.h>

#include <iostream>
#include <optional>

using namespace distgrad;
using Tensors = std::vector<at::Tensor>;
using Numbers = std::vector<std::int64_t>;
using Way = std::vector<int>;

// What another worker gets: a tensor, or one of the tensors of a remote value.
struct Operand {
  at::Tensor tensor;
  std::optional<RRef<Tensors>> reference;
  std::int64_t output = 0;
};
using Operands = std::vector<Operand>;
Operand of(at::Tensor const& tensor) { return {tensor, {}, 0}; }
Operand of(RRef<Tensors> const& values, std::int64_t output) { return {{}, values, output}; }

Tensors copies(Tensors tensors) {
  for (auto& tensor : tensors) tensor = tensor.clone();
  return tensors;
}
// Runs an operation on the last worker of the way. With `Own` it may change its operands.
template <auto Operation, bool Own = false>
Tensors run(Way way, Numbers const& n, Operands const& operands) {
  if (!way.empty()) {
    int const next = way.front();
    way.erase(way.begin());
    return this_worker().rpc_sync<run<Operation, Own>>(next, way, n, operands);
  }
  Tensors x;
  for (auto const& operand : operands) {
    bool const is_here = operand.reference && operand.reference->is_owner();
    x.push_back(operand.reference ? operand.reference->to_here()[operand.output] : operand.tensor);
    if (Own && is_here) x.back() = x.back().clone();
  }
  return Operation(x, n);
}
// The same, leaving the result there.
template <auto Operation, bool Own = false>
RRef<Tensors> keep(Way way, Numbers const& n, Operands const& operands) {
  int const next = way.front();
  way.erase(way.begin());
  if (way.empty()) return this_worker().remote<run<Operation, Own>>(next, way, n, operands);
  return this_worker().rpc_sync<keep<Operation, Own>>(next, way, n, operands);
}
at::Tensor gradient_of(RRef<Tensors> const& leaf) {
  auto const gradient =
      this_worker().context_part(this_worker().current_context())->gradient(leaf.local_value()[0]);
  return gradient.defined() ? gradient.detach() : gradient;
}
at::Tensor penalty(Tensors const& gradients) {
  at::Tensor sum;
  for (auto const& g : gradients) {
    if (!g.defined() || !g.requires_grad()) continue;
    auto const part = g.clone().sin().sum();
    sum = sum.defined() ? sum.add(part) : part;
  }
  return sum;
}
int different = 0;
void show(char const* leaf, at::Tensor const& uncut, at::Tensor const& cut) {
  bool same = uncut.defined() == cut.defined();
  if (same && cut.defined()) same = at::allclose(uncut.to_dense(), cut.to_dense(), 1e-12, 1e-12);
  std::cout << leaf << (same ? ": same\n" : ": DIFFERENT\n") << "uncut:\n"
            << (uncut.defined() ? uncut.detach() : uncut) << "\ncut:\n" << cut << "\n\n";
  different += !same;
}

Tensors f_leaf([[maybe_unused]] Tensors const& x, [[maybe_unused]] Numbers const& n) {
  auto const values = at::arange(n[1] * n[2], at::kDouble).add(double(n[0])).sin();
  return {values.reshape({n[1], n[2]}).set_requires_grad(n[3] != 0)};
}
Tensors f_hooked_leaf([[maybe_unused]] Tensors const& x, [[maybe_unused]] Numbers const& n) {
  auto const values = at::arange(n[1] * n[2], at::kDouble).add(double(n[0])).sin();
  auto const result = values.reshape({n[1], n[2]}).set_requires_grad(true);
  result.register_hook([](at::Tensor const& g) {
    return g.defined() ? g.mul(-0.5) : g;
  });
  return {result};
}
Tensors f_mul([[maybe_unused]] Tensors const& x, [[maybe_unused]] Numbers const& n) {
  return {x[0].mul(x[1])};
}
Tensors f_mix([[maybe_unused]] Tensors const& x, [[maybe_unused]] Numbers const& n) {
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
}
Tensors f_hook_operand([[maybe_unused]] Tensors const& x, [[maybe_unused]] Numbers const& n) {
  if (x[0].requires_grad()) {
    x[0].register_hook([](at::Tensor const& g) {
      return g.defined() ? g.mul(-1.5) : g;
    });
  }
  return {x[0].tanh()};
}
Tensors f_slice([[maybe_unused]] Tensors const& x, [[maybe_unused]] Numbers const& n) {
  return {x[0].narrow(n[0], n[1], n[2])};
}

int main() {
  // Uncut.
  Tensors const u0 = f_leaf({}, {0, 2, 3, 1});
  Tensors const u1 = f_hooked_leaf({}, {1, 2, 3, 1});
  Tensors const u2 = f_mul({u0[0], u1[0]}, {});
  Tensors const u3 = f_mix({u2[0], u1[0]}, {});
  Tensors const u4 = f_hook_operand(copies({u3[1]}), {});
  Tensors const u5 = f_slice({u4[0]}, {1, 0, 2});
  Tensors const uncut_roots{u3[0], u5[0]};
  Tensors const uncut_roots_starts{at::full_like(uncut_roots[0].detach(), 1), at::full_like(uncut_roots[1].detach(), 0.75)};
  auto const uncut_loss = penalty(torch::autograd::grad(uncut_roots, {u0[0]}, uncut_roots_starts, true, true, true));
  if (uncut_loss.defined()) {
    torch::autograd::backward({uncut_loss}, {}, false, false);
  }

  // Cut.
  LocalCluster<3, LoopbackEngine> cluster;
  auto& self = cluster[1];
  auto const v0 = f_leaf({}, {0, 2, 3, 1});
  auto const v1 = self.remote<run<f_hooked_leaf>>("worker2", Way{}, Numbers{1, 2, 3, 1}, Operands{});
  {
    auto ctx = self.context();
    auto const v2 = self.rpc_sync<run<f_mul>>("worker0", Way{1, 2}, Numbers{},
        Operands{of(v0[0]), of(v1, 0)});
    auto const v3 = self.rpc_sync<keep<f_mix>>("worker2", Way{0}, Numbers{},
        Operands{of(v2[0]), of(v1, 0)});
    auto const v4 = self.remote<run<f_hook_operand, true>>("worker2", Way{1}, Numbers{},
        Operands{of(v3, 1)});
    auto const v5 = self.rpc_sync<run<f_slice>>("worker2", Way{}, Numbers{1, 0, 2},
        Operands{of(v4, 0)});
    auto const s3 = v3.to_here()[0];
    auto const s5 = v5[0];
    Tensors const cut_roots{s3, s5};
    Tensors const cut_roots_starts{at::full_like(cut_roots[0].detach(), 1), at::full_like(cut_roots[1].detach(), 0.75)};
    auto const cut_loss = penalty(ctx.grad(cut_roots, {v0[0]}, {.mode = BackwardMode::smart, .retain_graph = true, .create_graph = true, .gradients = cut_roots_starts}));
    if (cut_loss.defined()) {
      ctx.backward({cut_loss}, {.mode = BackwardMode::smart});
    }
    show("leaf 0", u0[0].grad(), ctx.gradient(v0[0]));
    show("leaf 1", u1[0].grad(), self.rpc_sync<gradient_of>("worker2", v1));
  }
  cluster.shutdown();
  return different;
}
