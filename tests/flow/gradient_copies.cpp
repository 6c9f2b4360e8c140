// Whose memory a gradient is: kept where nobody else has it, copied where somebody does, and never
// more often than libtorch copies it for the uncut graph.
#include "workers.hpp"

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "kept.hpp"

#include <ATen/ops/linear.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

namespace gradient_copies_tests {

using namespace distgrad;
using rig::leaf;
using rig::Mode;
using rig::same;
using rig::Workers;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// --- nodes that know where their gradients lie ---------------------------------------------------

std::atomic<void const*> copies_made_at{nullptr};

/// Hands a gradient of its own to each of its inputs: to all of them the same.
struct Makes : torch::autograd::Function<Makes> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    auto made = gradients[0].mul(2);
    copies_made_at = made.data_ptr();
    return {std::move(made)};
  }
};
struct MakesForTwo : torch::autograd::Function<MakesForTwo> {
  static at::Tensor forward(AutogradContext*, at::Tensor x, at::Tensor y) { return x.add(y); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    auto const made = gradients[0].mul(2);
    copies_made_at = made.data_ptr();
    return {made, made};
  }
};

at::Tensor copies_parameter, copies_other;  // of worker 1

at::Tensor copies_add_made(at::Tensor const& x) { return x.add(Makes::apply(copies_parameter)); }
at::Tensor copies_add_shared(at::Tensor const& x) {
  return x.add(MakesForTwo::apply(copies_parameter, copies_other));
}
at::Tensor copies_to_sender_and_leaf(at::Tensor const& x) {
  return MakesForTwo::apply(x, copies_parameter).mul(1);
}
at::Tensor copies_add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }

// --- kept ----------------------------------------------------------------------------------------

void kept_on_the_owner(Workers const& w) {
  copies_parameter = rig::kept(leaf(2));
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<copies_add_made>("worker1", x).sum();
  ctx.backward({root}, {.retain_graph = true});
  auto const there = w[1].context_part(ctx.id());
  void const* const kept = there->gradient(copies_parameter).data_ptr();
  CHECK(kept == copies_made_at);
  ctx.backward({root});
  CHECK(there->gradient(copies_parameter).data_ptr() == kept);  // added to in place
  CHECK(same(there->gradient(copies_parameter), at::ones({3, 3}).mul(4)));
}

void kept_as_it_arrived(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  void const* arrived = nullptr;
  x.register_hook([&](at::Tensor const& gradient) { arrived = gradient.data_ptr(); });
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<copies_add>("worker1", x, y).mul(y.detach()).sum();
  ctx.backward({root}, {.retain_graph = true});
  CHECK(ctx.gradient(x).data_ptr() == arrived);
  auto const first = ctx.gradient(x).data_ptr();
  ctx.backward({root});
  CHECK(ctx.gradient(x).data_ptr() == first);
  CHECK(ctx.gradient(x).data_ptr() != ctx.gradient(y).data_ptr());
}

// --- copied --------------------------------------------------------------------------------------

void shared_by_two_leaves(Workers const& w) {
  copies_parameter = rig::kept(leaf(2));
  copies_other = rig::kept(leaf(3));
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<copies_add_shared>("worker1", leaf(1)).sum()});
  auto const there = w[1].context_part(ctx.id());
  auto const first = there->gradient(copies_parameter), second = there->gradient(copies_other);
  CHECK(first.data_ptr() != copies_made_at);
  CHECK(second.data_ptr() != copies_made_at);
  CHECK(first.data_ptr() != second.data_ptr());
}

// One gradient goes to a leaf and into a message: adding to the leaf's must not change the other.
void shared_by_a_leaf_and_a_message(Workers const& w) {
  copies_parameter = rig::kept(leaf(2));
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<copies_to_sender_and_leaf>("worker1", x).sum();
  for (int pass = 1; pass <= 3; ++pass) {
    ctx.backward({root}, {.retain_graph = true});
    CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(2 * pass)));
    auto const there = w[1].context_part(ctx.id())->gradient(copies_parameter);
    CHECK(same(there, at::ones({3, 3}).mul(2 * pass)));
    CHECK(there.data_ptr() != ctx.gradient(x).data_ptr());
  }
}

std::vector<at::Tensor> copies_held;

at::Tensor copies_hold(at::Tensor const& x) {
  auto const result = x.mul(2);
  x.register_hook([](at::Tensor const& gradient) { copies_held.push_back(gradient); });
  return result;
}

// Somebody keeps a gradient that went into a message: later sums elsewhere leave it alone.
void kept_by_a_hook(Workers const& w) {
  copies_held.clear();
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<copies_hold>("worker1", x).sum();
  for (int pass = 0; pass < 3; ++pass) ctx.backward({root}, {.retain_graph = true});
  REQUIRE(copies_held.size() == 3);
  for (auto const& gradient : copies_held) CHECK(same(gradient, at::ones({3, 3}).mul(2)));
  CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(6)));
  copies_held.clear();
}

// The caller's gradient of a root stays the caller's, though the root came from another worker.
void gradient_of_a_root(Workers const& w) {
  auto const x = leaf(1), y = leaf(2), g = at::ones({3, 3}).mul(3);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<copies_add>("worker1", x, y);
  for (int pass = 1; pass <= 2; ++pass) {
    ctx.backward({root, x}, {.retain_graph = true, .gradients = {g, g}});
    CHECK(same(g, at::ones({3, 3}).mul(3)));
    CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(6 * pass)));
    CHECK(ctx.gradient(x).data_ptr() != g.data_ptr());
    CHECK(ctx.gradient(y).data_ptr() != g.data_ptr());
  }
}

void contexts_share_nothing(Workers const& w) {
  copies_parameter = rig::kept(leaf(2));
  auto const x = leaf(1);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 1; i <= 4; ++i) {
    threads.emplace_back([&, i] {
      auto ctx = w[0].context();
      auto const root = w[0].rpc_sync<copies_add_made>("worker1", x.mul(i)).sum();
      for (int pass = 0; pass < 20; ++pass) ctx.backward({root}, {.retain_graph = true});
      auto const there = w[1].context_part(ctx.id())->gradient(copies_parameter);
      right += same(ctx.gradient(x), at::ones({3, 3}).mul(20 * i)) &&
               same(there, at::ones({3, 3}).mul(40));
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == 4);
}

// --- counted -------------------------------------------------------------------------------------

/// Counts libtorch's operators by name, on all threads, while it lives.
class OperatorCount {
 public:
  using Counts = std::map<std::string, int>;
  OperatorCount() {
    std::lock_guard const lock(mutex);
    counts.clear();
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&note));
  }
  ~OperatorCount() { at::removeCallback(handle_); }
  Counts so_far() const {
    std::lock_guard const lock(mutex);
    return counts;
  }

 private:
  static std::unique_ptr<at::ObserverContext> note(at::RecordFunction const& function) {
    std::lock_guard const lock(mutex);
    ++counts[function.name()];
    return nullptr;
  }
  static inline std::mutex mutex;
  static inline Counts counts;
  at::CallbackHandle handle_;
};

struct Graph {
  char const* name;
  std::function<at::Tensor(Workers const&, Mode, std::vector<at::Tensor> const&)> build;
};

at::Tensor copies_linear(at::Tensor const& x, at::Tensor const& y) {
  return at::linear(x, y, y[0]);
}
at::Tensor copies_first(at::Tensor const& x, at::Tensor const&) { return x.alias(); }
std::vector<at::Tensor> copies_split(at::Tensor const& x) { return x.split(1); }

// clang-format off
std::vector<Graph> const& copies_graphs() {
  static std::vector<Graph> const all{
      {"a chain", [](auto& w, auto mode, auto& x) {
         auto const one = rig::run<copies_linear>(w[0], mode, "worker1", x[0], x[1]);
         return rig::run<copies_linear>(w[0], mode, "worker2", one.tanh(), x[2]).pow(2).sum(); }},
      {"an expanded gradient for a leaf", [](auto& w, auto mode, auto& x) {
         return rig::run<copies_first>(w[0], mode, "worker1", x[0], x[1]).sum(); }},
      {"a leaf that is used by three calls", [](auto& w, auto mode, auto& x) {
         auto sum = rig::run<copies_add>(w[0], mode, "worker1", x[0], x[1]);
         for (auto to : {"worker2", "worker3"}) {
           sum = sum.mul(rig::run<copies_linear>(w[0], mode, to, x[0], x[1])); }
         return sum.sum(); }},
      {"outputs of which some are used", [](auto& w, auto mode, auto& x) {
         auto const rows = rig::run<copies_split>(w[0], mode, "worker1", x[0]);
         return rows[0].mul(rows[2]).add(x[1]).sum(); }},
      {"one gradient for two arguments", [](auto& w, auto mode, auto& x) {
         auto const sum = rig::run<copies_add>(w[0], mode, "worker1", x[0].mul(2), x[1].mul(3));
         return sum.mul(x[2]).sum(); }}};
  return all;
}
// clang-format on

// Every copy of libtorch's ends in copy_; sums are in place or not, depending on its version.
int copies(OperatorCount::Counts& counts) { return counts["aten::copy_"]; }
int sums(OperatorCount::Counts& counts) { return counts["aten::add"] + counts["aten::add_"]; }

void no_more_copies(Workers const& w) {
  for (auto const& graph : copies_graphs()) {
    CAPTURE(std::string(graph.name));
    auto const leaves = [] { return std::vector{leaf(1), leaf(2), leaf(3)}; };
    auto const mine = leaves(), theirs = leaves();
    auto const local = graph.build(w, Mode::local, theirs);
    OperatorCount::Counts expected, got;
    {
      OperatorCount const count;
      torch::autograd::backward({local}, {});
      expected = count.so_far();
    }
    auto ctx = w[0].context();
    auto const root = graph.build(w, Mode::call, mine);
    {
      OperatorCount const count;
      ctx.backward({root});
      got = count.so_far();
    }
    CHECK(copies(got) <= copies(expected));
    CHECK(sums(got) <= sums(expected));
    for (std::size_t i = 0; i < mine.size(); ++i) {
      auto const mine_now = ctx.gradient(mine[i]), theirs_now = theirs[i].grad();
      REQUIRE(mine_now.defined() == theirs_now.defined());
      if (mine_now.defined()) CHECK(mine_now.allclose(theirs_now));  // of three terms in any order
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("[DA-61] a remote leaf keeps a gradient that was made for it alone", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(kept_on_the_owner);
}
TEST_CASE_TEMPLATE("[DA-61] a leaf keeps the gradient that arrived for it", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(kept_as_it_arrived);
}
TEST_CASE_TEMPLATE("[DA-61] a gradient that two remote leaves share is copied for both", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(shared_by_two_leaves);
}
TEST_CASE_TEMPLATE("[DA-61] a gradient for a leaf and for a message is not mixed up", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(shared_by_a_leaf_and_a_message);
}
TEST_CASE_TEMPLATE("a gradient that a hook keeps stays as it was sent", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(kept_by_a_hook);
}
TEST_CASE_TEMPLATE("the gradient of a root stays the caller's", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(gradient_of_a_root);
}
TEST_CASE_TEMPLATE("contexts at the same time share no gradient's memory", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(contexts_share_nothing);
}
TEST_CASE_TEMPLATE("no gradient is copied more often than in the uncut graph", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(no_more_copies);
}

}  // namespace gradient_copies_tests
