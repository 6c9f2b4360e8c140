// Gradients of graphs that are cut over workers equal those of the uncut graph.
#include "simulated.hpp"
#include "workers.hpp"

#include <map>

#include <ATen/ops/bmm.h>
#include <ATen/ops/linalg_multi_dot.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>

namespace gradients_tests {

using namespace distgrad;
using rig::Layout;
using rig::leaf;
using rig::Mode;
using rig::same;
using rig::Workers;

namespace {

constexpr Mode all_modes[] = {Mode::local, Mode::call, Mode::remote};

at::Tensor gradients_add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }
at::Tensor gradients_mul(at::Tensor const& x, at::Tensor const& y) { return x.mul(y); }
at::Tensor gradients_matmul(at::Tensor const& x, at::Tensor const& y) { return x.matmul(y); }
at::Tensor gradients_bmm(at::Tensor const& x, at::Tensor const& y) { return x.bmm(y); }
at::Tensor gradients_stack(std::vector<at::Tensor> const& tensors) { return at::stack(tensors); }
at::Tensor gradients_chain(std::vector<at::Tensor> const& tensors) {
  return at::linalg_multi_dot(tensors);
}
std::vector<at::Tensor> gradients_split(at::Tensor const& x) { return x.split(1); }

at::Tensor filled(at::IntArrayRef sizes, int seed, bool requires_grad = true) {
  std::int64_t count = 1;
  for (auto size : sizes) count *= size;
  auto values = at::arange(count, at::kFloat).mul(0.37).add(seed).sin().reshape(sizes);
  return rig::at_home(values).set_requires_grad(requires_grad);
}

// --- .grad ---------------------------------------------------------------------------------------

void grad_is_untouched(Workers const& w) {
  for (auto layout : rig::layouts()) {
    auto const x = leaf(1, layout), y = leaf(2, layout);
    auto const before = leaf(9, layout).detach();
    x.mutable_grad() = before;
    auto const copy = before.clone();
    auto ctx = w[0].context();
    auto const root = w[0].rpc_sync<gradients_add>("worker1", x, y);
    auto const g = rig::ones_for(root);
    for (int pass = 0; pass < 2; ++pass) {
      ctx.backward({root}, {.retain_graph = true, .gradients = {g}});
      CHECK(x.grad().is_same(before));
      CHECK(same(x.grad(), copy));
      CHECK_FALSE(y.grad().defined());
    }
    CHECK(same(ctx.gradient(x), g.add(g)));
    CHECK_FALSE(ctx.gradient(x).is_same(before));
  }
}

// --- one call ------------------------------------------------------------------------------------

void simple_add(Workers const& w, char const* to) {
  for (auto layout : rig::layouts()) {
    auto const x = leaf(1, layout), y = leaf(2, layout);
    for (auto mode : all_modes) {
      auto ctx = w[0].context();
      auto const root = rig::run<gradients_add>(w[0], mode, to, x, y);
      auto const g = rig::ones_for(root);
      ctx.backward({root}, {.gradients = {g}});
      rig::check_gradients(ctx, x.add(y), {x, y}, g);
      CHECK(ctx.gradients().size() == 2);
    }
  }
}

// --- references ----------------------------------------------------------------------------------

at::Tensor gradients_leaf(int seed, bool sparse) {
  return leaf(seed, sparse ? Layout::sparse : Layout::dense);
}
at::Tensor add_rref(at::Tensor const& x, RRef<at::Tensor> const& y) {
  return x.add(y.local_value());
}
/// Calls the owner of `y` in its turn.
at::Tensor add_rref_at_owner(at::Tensor const& x, RRef<at::Tensor> const& y) {
  return this_worker().rpc_sync<add_rref>(y.owner().id, x, y);
}

void check_owner(Worker const& owner, ContextId id, at::Tensor const& leaf_value,
                 at::Tensor const& expected) {
  auto const there = owner.context_part(id)->gradients();
  REQUIRE(there.size() == 1);
  CHECK(same(there[0].variable, leaf_value));
  CHECK(same(there[0].gradient, expected));
  CHECK_FALSE(there[0].variable.grad().defined());
}

void leaf_on_its_owner(Workers const& w, bool by_third) {
  for (auto layout : rig::layouts()) {
    bool const sparse = layout == Layout::sparse;
    auto const x = gradients_leaf(1, sparse), y = gradients_leaf(2, sparse);
    auto const remote_leaf = w[0].remote<gradients_leaf>("worker1", 2, sparse);
    for (auto mode : {Mode::call, Mode::remote}) {
      auto ctx = w[0].context();
      auto const root = by_third
                            ? rig::run<add_rref_at_owner>(w[0], mode, "worker2", x, remote_leaf)
                            : rig::run<add_rref>(w[0], mode, "worker1", x, remote_leaf);
      auto const g = rig::ones_for(root);
      ctx.backward({root}, {.gradients = {g}});
      auto const expected = rig::local_gradients(x.add(y), {x, y}, g);
      CHECK(same(ctx.gradient(x), expected[0]));
      CHECK(ctx.gradients().size() == 1);
      check_owner(w[1], ctx.id(), y, expected[1]);
    }
  }
}

/// The gradient of `value` in the context of the call, on its owner.
at::Tensor gradients_at_owner(RRef<at::Tensor> const& value) {
  auto& self = this_worker();
  return self.context_part(self.current_context())->gradient(value.local_value());
}

at::Tensor mul_rref(at::Tensor const& x, RRef<at::Tensor> const& y) {
  return x.mul(y.local_value());
}

/// One trainer: a context of its own, a leaf of its own, and the shared leaf of `parameter`.
/// @return the gradients of both.
std::vector<at::Tensor> gradients_train(RRef<at::Tensor> const& parameter, int seed) {
  auto& self = this_worker();
  auto const x = leaf(seed);
  auto ctx = self.context();
  auto const product = self.rpc_sync<mul_rref>(parameter.owner().id, x, parameter);
  ctx.backward({product.sum()});
  if (ctx.gradients().size() != 1) return {};
  return {ctx.gradient(x), self.rpc_sync<gradients_at_owner>(parameter.owner().id, parameter)};
}

/// All trainers of all `owners` at the same time.
void train(Workers const& w, std::vector<int> const& owners) {
  struct Training {
    int owner, seed;
    Future<std::vector<at::Tensor>> gradients;
  };
  std::map<int, RRef<at::Tensor>> parameters;
  std::vector<Training> trainings;
  for (int owner : owners) {
    parameters.emplace(owner, w[0].remote<gradients_leaf>(owner, 100 + owner, false));
  }
  for (int round = 0; round < 3; ++round) {
    for (int owner : owners) {
      for (int trainer = 0; trainer < 4; ++trainer) {
        if (trainer == owner) continue;
        int const seed = round * 100 + owner * 10 + trainer;
        trainings.push_back(
            {owner, seed, w[0].rpc_async<gradients_train>(trainer, parameters.at(owner), seed)});
      }
    }
  }
  for (auto const& training : trainings) {
    CAPTURE(training.seed);
    auto const x = leaf(training.seed), parameter = leaf(100 + training.owner);
    auto const expected = rig::local_gradients(x.mul(parameter).sum(), {x, parameter});
    auto const got = training.gradients.get();
    REQUIRE(got.size() == 2);
    CHECK(same(got[0], expected[0]));
    CHECK(same(got[1], expected[1]));
  }
}

void one_owner(Workers const& w) { train(w, {1}); }
void four_owners(Workers const& w) { train(w, {0, 1, 2, 3}); }

// --- larger graphs -------------------------------------------------------------------------------

/// Runs operations in one mode, each on the next worker.
class Alternating {
 public:
  Alternating(Worker const& worker, Mode mode) : worker_(worker), mode_(mode) {}

  template <auto F, class... Args>
  auto run(Args const&... args) {
    static constexpr char const* workers[] = {"worker1", "worker2", "worker3", "worker0"};
    return rig::run<F>(worker_, mode_, workers[count_++ % 4], args...);
  }

 private:
  Worker const& worker_;
  Mode mode_;
  std::size_t count_ = 0;
};

void round_trips(Workers const& w) {
  for (auto layout : rig::layouts()) {
    auto const a = leaf(1, layout), b = leaf(2, layout).detach(), c = leaf(3, layout),
               d = leaf(4, layout).detach(), e = leaf(5, layout);
    auto const graph = [&](Mode mode) {
      Alternating on(w[0], mode);
      auto value = on.run<gradients_add>(a, b);
      if (layout == Layout::sparse) {
        value = on.run<gradients_add>(c, value);
        auto const first = on.run<gradients_add>(value, d);
        auto const second = on.run<gradients_add>(value, e);
        return on.run<gradients_add>(first, second);
      }
      value = on.run<gradients_mul>(c, value);
      auto const first = on.run<gradients_stack>(std::vector{d, value});
      auto const second = on.run<gradients_stack>(std::vector{e, value});
      value = on.run<gradients_bmm>(first, second);
      return on.run<gradients_matmul>(value, value);
    };
    for (auto mode : all_modes) {
      auto ctx = w[0].context();
      auto const root = graph(mode);
      auto const g = rig::ones_for(root);
      ctx.backward({root}, {.gradients = {g}});
      auto const local = graph(Mode::local);
      rig::check_gradients(ctx, local, {a, c, e}, g);
      CHECK(ctx.gradients().size() == 3);
    }
  }
}

void rectangles(Workers const& w) {
  auto const a = filled({4, 6}, 1), b = filled({6, 5}, 2, false), c = filled({5, 7}, 3),
             d = filled({7, 9}, 4, false);
  auto const graph = [&](Mode mode) {
    Alternating on(w[0], mode);
    auto const value = on.run<gradients_matmul>(a, b);
    return on.run<gradients_chain>(std::vector{value, c, d}).sum();
  };
  for (auto mode : all_modes) {
    auto ctx = w[0].context();
    ctx.backward({graph(mode)});
    rig::check_gradients(ctx, graph(Mode::local), {a, c});
    CHECK_FALSE(ctx.gradient(b).defined());
    CHECK_FALSE(ctx.gradient(d).defined());
    CHECK(ctx.gradients().size() == 2);
  }
}

void partly_used_stack(Workers const& w) {
  auto const a = leaf(1), b = leaf(2), c = leaf(3);
  auto const graph = [&](Mode mode) {
    Alternating on(w[0], mode);
    auto const stacked = on.run<gradients_stack>(std::vector{a, b, c});
    auto const first = stacked.narrow(0, 0, 1), last = stacked.narrow(0, 2, 1);
    return on.run<gradients_matmul>(first, last).sum();
  };
  for (auto mode : all_modes) {
    auto ctx = w[0].context();
    ctx.backward({graph(mode)});
    rig::check_gradients(ctx, graph(Mode::local), {a, b, c});
    REQUIRE(ctx.gradient(b).defined());
    CHECK(ctx.gradient(b).count_nonzero().item<std::int64_t>() == 0);
  }
}

void some_outputs(Workers const& w) {
  auto const x = filled({5, 3}, 1);
  auto const graph = [&](Mode mode) {
    Alternating on(w[0], mode);
    auto const rows = on.run<gradients_split>(x);
    REQUIRE(rows.size() == 5);
    auto const product = on.run<gradients_mul>(rows[0], rows[2]);
    return on.run<gradients_add>(product, rows[4]).sum();
  };
  for (auto mode : all_modes) {
    auto ctx = w[0].context();
    ctx.backward({graph(mode)});
    rig::check_gradients(ctx, graph(Mode::local), {x});
    CHECK(ctx.gradients().size() == 1);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("[DA-27] a pass leaves .grad as it is", Engine, DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(grad_is_untouched);
}
TEST_CASE_TEMPLATE("[DA-28] an addition on another worker has the local gradients", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { simple_add(w, "worker1"); });
}
TEST_CASE_TEMPLATE("[DA-29] an addition by a call to itself has the local gradients", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { simple_add(w, "worker0"); });
}
TEST_CASE_TEMPLATE("[DA-30] a referenced leaf gets its gradient on its owner", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { leaf_on_its_owner(w, false); });
}
TEST_CASE_TEMPLATE("[DA-31] several workers use one owner's leaf, each in its own context", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(one_owner);
}
TEST_CASE_TEMPLATE("[DA-32] a leaf used through a third worker gets its gradient on its owner",
                   Engine, DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) { leaf_on_its_owner(w, true); });
}
TEST_CASE_TEMPLATE("[DA-33] each worker is a parameter server for all others", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(four_owners);
}
TEST_CASE_TEMPLATE("[DA-35] a value goes through alternating workers several times", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(round_trips);
}
TEST_CASE_TEMPLATE("[DA-36] rectangular products, and constants among them", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(rectangles);
}
TEST_CASE_TEMPLATE("[DA-37] the unused part of a stack contributes zeros", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(partly_used_stack);
}
TEST_CASE_TEMPLATE("[DA-38] some of a function's outputs are used", Engine, DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(some_outputs);
}

}  // namespace gradients_tests
