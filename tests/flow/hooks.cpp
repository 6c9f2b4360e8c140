// Hooks of every kind run once in each pass, in libtorch's order, on the worker whose graph they
// belong to. The oracle is the same function, with the same hooks, under libtorch's own engine.
#include "workers.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>

#include "kept.hpp"

#include <torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#endif

namespace hooks_tests {

using namespace distgrad;
using rig::leaf;
using rig::Mode;
using rig::same;
using rig::Workers;
using torch::autograd::variable_list;

namespace {

// --- what the hooks saw --------------------------------------------------------------------------

struct Event {
  std::string what;
  double sum;  // of the gradient
  std::thread::id thread;
};

class Journal {
 public:
  void add(std::string what, at::Tensor const& gradient) {
    std::lock_guard lock(mutex_);
    double const sum = gradient.defined() ? gradient.sum().item<double>() : -1;
    events_.push_back({std::move(what), sum, std::this_thread::get_id()});
  }
  std::vector<Event> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Event> events_;
};
Journal hooks_journal;

std::vector<std::string> names(std::vector<Event> const& events) {
  std::vector<std::string> all;
  for (auto const& event : events) all.push_back(event.what);
  return all;
}

/// A tensor hook that writes down what it sees and passes on `factor` times it.
void watch(at::Tensor const& tensor, std::string const& name, double factor = 1) {
  tensor.register_hook([=](at::Tensor const& gradient) {
    hooks_journal.add(name, gradient);
    return gradient.mul(factor);
  });
}

struct PreHook : torch::autograd::FunctionPreHook {
  explicit PreHook(std::string name) : name(std::move(name)) {}
  variable_list operator()(variable_list const& gradients) override {
    hooks_journal.add(name, gradients.at(0));
    return gradients;
  }
  std::string name;
};
struct PostHook : torch::autograd::FunctionPostHook {
  explicit PostHook(std::string name) : name(std::move(name)) {}
  variable_list operator()(variable_list const& outputs, variable_list const& inputs) override {
    hooks_journal.add(name, inputs.at(0));
    return outputs;
  }
  std::string name;
};

template <class NodePtr>
void watch_node(NodePtr const& node, std::string const& name) {
  node->add_pre_hook(std::make_unique<PreHook>("before " + name));
  node->add_post_hook(std::make_unique<PostHook>("after " + name));
}

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
#define DISTGRAD_TEST_POST_ACCUMULATE 1
struct AfterAccumulation : torch::autograd::PostAccumulateGradHook {
  explicit AfterAccumulation(std::string name) : name(std::move(name)) {}
  void operator()(at::Tensor const&) override { hooks_journal.add(name, {}); }
  std::string name;
};
#endif

/// @return the leaf's node, which must live until a graph holds it, or its hooks are lost.
auto watch_leaf(at::Tensor const& variable, std::string const& name) {
  watch(variable, "first hook of " + name, 2);
  watch(variable, "second hook of " + name);
  auto const node = torch::autograd::impl::grad_accumulator(variable);
  watch_node(node, name);
#ifdef DISTGRAD_TEST_POST_ACCUMULATE
  torch::autograd::impl::set_post_acc_grad_hooks(
      variable, std::make_unique<AfterAccumulation>("accumulated " + name));
#endif
  return node;
}

// --- a graph full of hooks -----------------------------------------------------------------------

at::Tensor hooks_parameter;  // on the worker that runs hooks_layer
at::Tensor hooks_received, hooks_inner;

/// A layer with hooks on its parameter, on an inner tensor, on its node, and on what it received.
at::Tensor hooks_layer(at::Tensor const& x) {
  hooks_received = x.alias();  // so that it is not the caller's tensor locally either
  watch(hooks_received, "received");
  hooks_inner = hooks_received.matmul(hooks_parameter);
  watch(hooks_inner, "inner", 3);
  watch_node(hooks_inner.grad_fn(), "matmul");
  hooks_inner.retain_grad();
  auto const result = hooks_inner.tanh();
  watch(result, "result");
  return result.alias();
}

struct Gradients {
  at::Tensor x, parameter, inner, sent, answer;
};

/// One pass over a fresh graph, and what its hooks saw.
class Experiment {
 public:
  Experiment() : x_(leaf(1)), x_node_(watch_leaf(x_, "x")) {
    hooks_parameter = rig::kept(leaf(2));
    parameter_node_ = watch_leaf(hooks_parameter, "parameter");
  }

  at::Tensor root(Workers const& w, Mode mode) {
    sent_ = rig::kept(x_.mul(0.5));
    watch(sent_, "sent");
    sent_.retain_grad();
    answer_ = rig::kept(rig::run<hooks_layer>(w[0], mode, "worker1", sent_));
    answer_.retain_grad();
    watch(answer_, "answer", 0.5);
    auto const root = rig::kept(answer_.mul(x_).sum());
    watch_node(root.grad_fn(), "sum");
    return root;
  }
  Gradients retained() const {
    return {x_.grad(), hooks_parameter.grad(), hooks_inner.grad(), sent_.grad(), answer_.grad()};
  }
  at::Tensor const& x() const { return x_; }

 private:
  at::Tensor x_, sent_, answer_;
  node_ptr x_node_, parameter_node_;
};

void check_where_hooks_ran(std::vector<Event> const& events) {
  for (auto const& event : events) {
    bool const is_remote = event.what == "received" || event.what == "inner" ||
                           event.what == "result" ||
                           event.what.find("parameter") != std::string::npos ||
                           event.what.find("matmul") != std::string::npos;
    CAPTURE(event.what);
    CHECK((event.thread == std::this_thread::get_id()) == !is_remote);
  }
}

void like_libtorch(Workers const& w, Mode mode) {
  Experiment local;
  torch::autograd::backward({local.root(w, Mode::local)}, {}, true);
  auto const expected = hooks_journal.take();
  auto const wanted = local.retained();

  Experiment remote;
  auto ctx = w[0].context();
  auto const root = remote.root(w, mode);
  for (int pass = 1; pass <= 2; ++pass) {
    ctx.backward({root}, {.retain_graph = true});
    auto const events = hooks_journal.take();
    CHECK(names(events) == names(expected));
    for (std::size_t i = 0; i < std::min(events.size(), expected.size()); ++i) {
      CAPTURE(events[i].what);
      CHECK(events[i].sum == expected[i].sum);
    }
    check_where_hooks_ran(events);
    rig::kept(hooks_inner);
    auto const got = remote.retained();
    CHECK_FALSE(got.x.defined());
    CHECK_FALSE(got.parameter.defined());
    CHECK(same(got.inner, wanted.inner.mul(pass)));
    CHECK(same(got.sent, wanted.sent.mul(pass)));
    CHECK(same(got.answer, wanted.answer.mul(pass)));
  }
  CHECK(same(ctx.gradient(remote.x()), wanted.x.mul(2)));
  auto const there = w[1].context_part(ctx.id());
  CHECK(same(there->gradient(hooks_parameter), wanted.parameter.mul(2)));
}

}  // namespace

TEST_CASE_TEMPLATE("hooks run once in each pass, in libtorch's order, where they were registered",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>([](Workers const& w) {
    like_libtorch(w, Mode::call);
    like_libtorch(w, Mode::remote);
  });
}

// --- hooks and several passes --------------------------------------------------------------------

namespace {

at::Tensor hooks_times_parameter(at::Tensor const& x) { return x.mul(hooks_parameter); }

struct Seen {
  std::mutex mutex;
  std::vector<double> sums;
};

// Each context multiplies the remote leaf by a number of its own, so a hook that saw a gradient of
// two contexts, or one of them twice, would be noticed.
void concurrent_contexts(Workers const& w) {
  hooks_parameter = rig::kept(leaf(2));
  auto const seen = std::make_shared<Seen>();
  hooks_parameter.register_hook([seen](at::Tensor const& gradient) {
    std::lock_guard lock(seen->mutex);
    seen->sums.push_back(gradient.sum().item<double>());
    return gradient.mul(2);
  });
  constexpr int rounds = 25;
  std::atomic<int> right{0};
  auto const train = [&](int first) {
    for (int i = 0; i < rounds; ++i) {
      double const factor = first + i;
      auto const x = at::ones({3, 3}).mul(factor).set_requires_grad(true);
      auto ctx = w[0].context();
      ctx.backward({w[0].rpc_sync<hooks_times_parameter>("worker1", x).sum()});
      auto const stored = w[1].context_part(ctx.id())->gradient(hooks_parameter);
      right += same(stored, at::ones({3, 3}).mul(2 * factor));
    }
  };
  std::thread other([&] { train(1001); });
  train(1);
  other.join();
  CHECK(right == 2 * rounds);
  std::vector<double> expected;
  for (int first : {1, 1001}) {
    for (int i = 0; i < rounds; ++i) expected.push_back(9.0 * (first + i));
  }
  std::sort(seen->sums.begin(), seen->sums.end());
  CHECK(seen->sums == expected);
}

at::Tensor hooks_watched(at::Tensor const& x) {
  watch(x, "on the receiver", 2);
  return x.mul(3);
}

// The same tensor, as its sender and as its receiver know it.
void both_ends_of_a_message(Workers const& w) {
  auto const x = leaf(1);
  auto const sent = x.mul(1);
  watch(sent, "on the sender", 5);
  auto ctx = w[0].context();
  auto const answer = w[0].rpc_sync<hooks_watched>("worker1", sent);
  watch(answer, "on the answer", 7);
  ctx.backward({answer.sum()});
  auto const events = hooks_journal.take();
  CHECK(names(events) ==
        std::vector<std::string>{"on the answer", "on the receiver", "on the sender"});
  CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(2 * 3 * 5 * 7)));
}

void removed_hook(Workers const& w) {
  auto const x = leaf(1);
  hooks_parameter = rig::kept(leaf(2));
  auto const add_hook = [](at::Tensor const& tensor) {
    return tensor.register_hook([](at::Tensor const& g) { hooks_journal.add("hook", g); });
  };
  auto const here = add_hook(x), there = add_hook(hooks_parameter);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<hooks_times_parameter>("worker1", x).sum();
  ctx.backward({root}, {.retain_graph = true});
  CHECK(hooks_journal.take().size() == 2);
  x.remove_hook(here);
  hooks_parameter.remove_hook(there);
  ctx.backward({root});
  CHECK(hooks_journal.take().empty());
}

at::Tensor hooks_plus_one(at::Tensor const& x) { return x.add(1); }

// What a hook does with remote calls is its own business: they are not part of the pass's graph.
void hook_that_calls(Workers const& w) {
  hooks_parameter = rig::kept(leaf(2));
  hooks_parameter.register_hook([&owner = w[1]](at::Tensor const& gradient) {
    return owner.rpc_sync<hooks_plus_one>("worker2", gradient);
  });
  auto const x = leaf(1);
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<hooks_times_parameter>("worker1", x).sum()});
  auto const stored = w[1].context_part(ctx.id())->gradient(hooks_parameter);
  CHECK(same(stored, x.detach().add(1)));
}

// --- hooks that fail -----------------------------------------------------------------------------

struct Report {
  int code = 0;
  std::string worker, text;
};
Report report_of(Context& ctx, at::Tensor const& root) {
  try {
    ctx.backward({root}, {.retain_graph = true});
  } catch (RemoteError const& e) {
    return {e.code().value(), e.worker(), e.remote_text()};
  }
  return {};
}

std::atomic<bool> hooks_break{false};

at::Tensor hooks_breaking(at::Tensor const& x) {
  auto const inner = x.mul(2);
  inner.register_hook([](at::Tensor const&) {
    if (hooks_break) throw std::runtime_error("this hook is broken");
  });
  return inner.mul(3);
}

void failing_hook(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<hooks_breaking>("worker1", x).sum();
  hooks_break = true;
  auto const report = report_of(ctx, root);
  hooks_break = false;
  CHECK(report.code == int(errc::pass_failed));
  CHECK(report.worker == "worker1");
  CHECK(report.text.find("this hook is broken") != std::string::npos);
  CHECK_FALSE(ctx.gradient(x).defined());
  ctx.backward({root});
  CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(6)));
}

at::Tensor hooks_reshaping(at::Tensor const& x) {
  auto const inner = x.mul(2);
  inner.register_hook([](at::Tensor const&) { return at::ones({2, 2}); });
  return inner.mul(3);
}

void reshaping_hook(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const report = report_of(ctx, w[0].rpc_sync<hooks_reshaping>("worker1", x).sum());
  CHECK(report.code == int(errc::pass_failed));
  CHECK(report.worker == "worker1");
  CHECK(report.text.find("size") != std::string::npos);
  CHECK_FALSE(ctx.gradient(x).defined());
}

}  // namespace

TEST_CASE_TEMPLATE("[C-010] of two contexts at a time a hook sees each one's gradient once", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(concurrent_contexts);
}
TEST_CASE_TEMPLATE("hooks of a tensor that was sent run on both ends, the receiver's first", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(both_ends_of_a_message);
}
TEST_CASE_TEMPLATE("a hook that was removed is not called", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(removed_hook);
}
TEST_CASE_TEMPLATE("a hook may call another worker", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(hook_that_calls);
}
TEST_CASE_TEMPLATE("an error in a hook names the worker and keeps its text", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(failing_hook);
}
TEST_CASE_TEMPLATE("a hook that changes the shape of a gradient ends the pass", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(reshaping_hook);
}

}  // namespace hooks_tests
