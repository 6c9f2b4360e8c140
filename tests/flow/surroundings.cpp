// What surrounds a pass: the thread's state when backward was called, anomaly mode, passes inside
// of passes, and what an error says about where it happened.
#include "workers.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>

#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/version.h>

namespace surroundings_tests {

using namespace distgrad;
using rig::leaf;
using rig::Mode;
using rig::same;
using rig::Workers;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

at::Tensor surround_mul(at::Tensor const& x, at::Tensor const& y) { return x.mul(y); }

bool mentions(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

struct Report {
  int code = 0;
  std::string worker, node, text, what;
};
Report report_of(Context& ctx, at::Tensor const& root) {
  try {
    ctx.backward({root}, {.retain_graph = true});
  } catch (RemoteError const& e) {
    return {e.code().value(), e.worker(), e.function(), e.remote_text(), e.what()};
  }
  return {};
}

// --- the state of the calling thread -------------------------------------------------------------

struct Mark : c10::DebugInfoBase {
  explicit Mark(int value) : value(value) {}
  int value;
};
int mark_here() {
  auto const* const mark = c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO);
  return mark ? static_cast<Mark const*>(mark)->value : 0;
}

std::mutex surround_mutex;
std::vector<int> surround_marks;
std::vector<bool> surround_modes;

void look_around() {
  std::lock_guard const lock(surround_mutex);
  surround_marks.push_back(mark_here());
  surround_modes.push_back(at::GradMode::is_enabled());
}

struct Looks : torch::autograd::Function<Looks> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    look_around();
    return gradients;
  }
};
at::Tensor surround_look(at::Tensor const& x) { return Looks::apply(x); }

// A node before the call, one after it, and a hook: they all run in backward's surroundings.
void state_of_the_thread(Workers const& w) {
  auto const x = leaf(1);
  x.register_hook([](at::Tensor const&) { look_around(); });
  surround_marks.clear();
  surround_modes.clear();
  auto ctx = w[0].context();
  auto const there = w[0].rpc_sync<surround_mul>("worker1", Looks::apply(x), x.detach());
  auto const root = Looks::apply(there).sum();
  {
    c10::DebugInfoGuard const guard(c10::DebugInfoKind::TEST_INFO, std::make_shared<Mark>(7));
    ctx.backward({root});
  }
  CHECK(surround_marks == std::vector{7, 7, 7});
  CHECK(surround_modes == std::vector{false, false, false});
  CHECK(mark_here() == 0);
  CHECK(at::GradMode::is_enabled());
}

// What the initiator's thread has set is its own: another worker's nodes run without recording,
// and leave no trace on the threads that ran them.
void state_of_others(Workers const& w) {
  surround_modes.clear();
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<surround_look>("worker1", x).sum();
  ctx.backward({root}, {.retain_graph = true});
  CHECK(surround_modes == std::vector{false});
  std::thread([&] { CHECK(w[0].rpc_sync<surround_look>("worker1", x).requires_grad()); }).join();
  {
    at::NoGradGuard const off;  // backward itself needs no recording
    ctx.backward({root});
  }
  CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(2)));
}

// --- anomaly mode --------------------------------------------------------------------------------

/// What libtorch warns of on this thread, instead of on stderr.
class Warnings : public c10::WarningHandler {
 public:
#if TORCH_VERSION_MAJOR >= 2
  using Guard = c10::WarningUtils::WarningHandlerGuard;
  void process(c10::Warning const& warning) override { text_ += warning.msg() + "\n"; }
#else
  using Guard = c10::Warning::WarningHandlerGuard;
  void process(c10::SourceLocation const&, std::string const& message, bool) override {
    text_ += message + "\n";
  }
#endif
  std::string const& text() const { return text_; }

 private:
  std::string text_;
  Guard guard_{this};
};

std::atomic<bool> surround_break{false};

struct Breaks : torch::autograd::Function<Breaks> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    if (surround_break) throw std::runtime_error("boom");
    return gradients;
  }
};
at::Tensor surround_breaks(at::Tensor const& x) { return Breaks::apply(x); }

/// 0 * inf: a gradient that is not a number, for a value that is one.
at::Tensor surround_root(at::Tensor const& x) { return x.mul(0).sqrt().mul(0); }

void nan_is_found(Workers const& w) {
  auto const x = leaf(1);
  for (auto mode : {Mode::local, Mode::call}) {
    torch::autograd::DetectAnomalyGuard const anomaly;
    Warnings const warnings;
    auto ctx = w[0].context();
    auto const report = report_of(ctx, rig::run<surround_root>(w[0], mode, "worker1", x).sum());
    CHECK(report.code == int(errc::pass_failed));
    CHECK(report.worker == (mode == Mode::local ? "worker0" : "worker1"));
    CHECK(mentions(report.node, "Sqrt"));
    CHECK(mentions(report.text, "Sqrt"));
    CHECK(mentions(report.text, "nan"));
    CHECK_FALSE(ctx.gradient(x).defined());
  }
  auto ctx = w[0].context();  // outside of the mode nobody minds
  ctx.backward({w[0].rpc_sync<surround_root>("worker1", x).sum()});
  CHECK(ctx.gradient(x).isnan().all().item<bool>());
}

void broken_node_is_traced(Workers const& w) {
  torch::autograd::DetectAnomalyGuard const anomaly;
  Warnings const warnings;
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const there = w[0].rpc_sync<surround_mul>("worker1", Breaks::apply(x), x.detach());
  surround_break = true;
  auto const report = report_of(ctx, there.sum());
  surround_break = false;
  CHECK(report.worker == "worker0");
  CHECK(mentions(report.node, "Breaks"));
  CHECK(mentions(report.text, "boom"));
  CHECK(mentions(warnings.text(), "Breaks"));
}

// --- errors --------------------------------------------------------------------------------------

at::Tensor surround_breaks_further(at::Tensor const& x) {
  return this_worker().rpc_sync<surround_breaks>("worker2", x.mul(2)).mul(3);
}

void error_of_a_nested_call(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const root = w[0].rpc_sync<surround_breaks_further>("worker1", x).sum();
  surround_break = true;
  auto const report = report_of(ctx, root);
  surround_break = false;
  CHECK(report.code == int(errc::pass_failed));
  CHECK(report.worker == "worker2");
  CHECK(mentions(report.node, "Breaks"));
  CHECK(report.text.rfind("boom", 0) == 0);
  CHECK(mentions(report.what, "worker2"));
  CHECK(mentions(report.what, "Breaks"));
  CHECK(mentions(report.what, "boom"));
  CHECK_FALSE(ctx.gradient(x).defined());
  ctx.backward({root});
  CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(6)));
}

struct WrongShape : torch::autograd::Function<WrongShape> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list) { return {at::ones({2, 5})}; }
};
struct WrongCount : torch::autograd::Function<WrongCount> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list) { return {}; }
};
struct NoStandardException : torch::autograd::Function<NoStandardException> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list) { throw 42; }
};
at::Tensor surround_wrong(at::Tensor const& x, int kind) {
  if (kind == 0) return WrongShape::apply(x);
  if (kind == 1) return WrongCount::apply(x);
  return NoStandardException::apply(x);
}

void errors_of_custom_functions(Workers const& w) {
  auto const x = leaf(1);
  char const* const nodes[] = {"WrongShape", "WrongCount", "NoStandardException"};
  for (int kind = 0; kind < 3; ++kind) {
    CAPTURE(kind);
    auto ctx = w[0].context();
    auto const report = report_of(ctx, w[0].rpc_sync<surround_wrong>("worker1", x, kind).sum());
    CHECK(report.code == int(errc::pass_failed));
    CHECK(report.worker == "worker1");
    CHECK(mentions(report.node, nodes[kind]));
    CHECK_FALSE(report.text.empty());
    CHECK_FALSE(ctx.gradient(x).defined());
  }
}

// --- passes inside of passes ---------------------------------------------------------------------

/// A distributed pass of its own, in a context of its own, within the backward of a node.
struct RunsAPass : torch::autograd::Function<RunsAPass> {
  static inline Worker const* worker = nullptr;
  static inline char const* to = nullptr;
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return x.mul(x);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto const x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    at::Tensor gradient;
    std::thread([&] {  // a thread outside of the outer context
      auto ctx = worker->context();
      ctx.backward({worker->rpc_sync<surround_mul>(to, x, x)}, {.gradients = {gradients[0]}});
      gradient = ctx.gradient(x);
    })
        .join();
    return {gradient};
  }
};
at::Tensor surround_runs_a_pass(at::Tensor const& x) { return RunsAPass::apply(x.mul(2)); }

void pass_inside_of_a_pass(Workers const& w) {
  auto const x = leaf(1);
  for (auto to : {"worker0", "worker1", "worker2"}) {
    RunsAPass::worker = &w[1];
    RunsAPass::to = to;
    auto ctx = w[0].context();
    ctx.backward({w[0].rpc_sync<surround_runs_a_pass>("worker1", x).sum()});
    auto const y = x.mul(2);
    rig::check_gradients(ctx, y.mul(y).sum(), {x});
  }
}

/// libtorch's grad over a graph of its own, with second derivatives, within the backward of a node.
struct Penalty : torch::autograd::Function<Penalty> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return x.tanh();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    at::AutoGradMode const recording(true);
    auto const x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    auto const first = torch::autograd::grad({x.tanh().sum()}, {x}, {}, true, true)[0];
    auto const second = torch::autograd::grad({first.pow(2).sum()}, {x})[0];
    return {gradients[0].mul(first).add(second).detach()};
  }
};
at::Tensor surround_penalty(at::Tensor const& x) { return Penalty::apply(x).mul(x); }

void derivatives_inside_of_a_pass(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<surround_penalty>("worker1", x).sum()});
  rig::check_gradients(ctx, surround_penalty(x).sum(), {x});
}

}  // namespace

TEST_CASE_TEMPLATE("nodes and hooks on the initiator see the state of the thread in backward",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(state_of_the_thread);
}
TEST_CASE_TEMPLATE("nodes on other workers record nothing, whatever the initiator does", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(state_of_others);
}
TEST_CASE_TEMPLATE("in anomaly mode a nan ends the pass and its node is named", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(nan_is_found);
}
TEST_CASE_TEMPLATE("in anomaly mode libtorch says where the broken node came from", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(broken_node_is_traced);
}
TEST_CASE_TEMPLATE("[C-013] an error of a nested call says which node failed, where, and why",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(error_of_a_nested_call);
}
TEST_CASE_TEMPLATE("whatever a custom function does wrong, the worker and the node are named",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(errors_of_custom_functions);
}
TEST_CASE_TEMPLATE("a node may run a distributed pass of its own", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(pass_inside_of_a_pass);
}
TEST_CASE_TEMPLATE("a node may take derivatives with libtorch's own engine", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(derivatives_inside_of_a_pass);
}

}  // namespace surroundings_tests
