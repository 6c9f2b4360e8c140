// SMART mode: whatever takes part is found, whatever does not costs nothing. The cases of one
// matrix: unused results, hidden paths, circles of workers, roots of their own chains, calls still
// on their way; each with the gradients of the uncut graph.
#include "meddling_transport.hpp"
#include "simulated.hpp"
#include "workers.hpp"

#include <atomic>
#include <ostream>

#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

namespace smart_mode_tests {

using namespace distgrad;
using namespace std::chrono_literals;
using rig::check_gradients;
using rig::leaf;
using rig::same;
using rig::Workers;

namespace {

using torch::autograd::AutogradContext;
using Tensors = std::vector<at::Tensor>;

at::Tensor smart_mul(at::Tensor const& x, at::Tensor const& y) { return x.mul(y); }
at::Tensor smart_sin(at::Tensor const& x) { return x.sin(); }
at::Tensor smart_same(at::Tensor const& x) { return x; }
Tensors smart_split(at::Tensor const& x) { return x.split(1); }

/// Goes down `hops` workers, one after the other.
at::Tensor smart_deeper(at::Tensor const& x, int hops) {
  if (hops == 0) return x.sin();
  auto& self = this_worker();
  auto const next = (self.rank() + 1) % 4;
  return self.rpc_sync<smart_deeper>(next, x.mul(2), hops - 1).cos();
}
at::Tensor deeper_here(at::Tensor const& x, int hops) {
  return hops == 0 ? x.sin() : deeper_here(x.mul(2), hops - 1).cos();
}

void unused_result(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  w[0].rpc_sync<smart_sin>("worker1", x);
  w[0].rpc_sync<smart_deeper>("worker1", y, 3);
  ctx.backward({w[0].rpc_sync<smart_mul>("worker1", x, y).sum()});
  check_gradients(ctx, x.mul(y).sum(), {x, y});
}

void root_without_calls(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  w[0].rpc_sync<smart_sin>("worker1", x);
  ctx.backward({x.mul(y).sum()});
  check_gradients(ctx, x.mul(y).sum(), {x, y});
}

// worker1 gets `x`, gives back two parts; one of them goes there again, the other is not used. So
// whether worker1's answer takes part is known on worker0 only, and the other way round.
void hidden_path(Workers const& w) {
  auto const x = leaf(1);
  auto const path = [&](auto&& split, auto&& sin) {
    auto const parts = split(x.mul(2));
    return sin(parts[1]).sum();
  };
  auto ctx = w[0].context();
  ctx.backward({path([&](at::Tensor const& t) { return w[0].rpc_sync<smart_split>("worker1", t); },
                     [&](at::Tensor const& t) { return w[0].rpc_sync<smart_sin>("worker1", t); })});
  check_gradients(ctx, path(smart_split, smart_sin), {x});
}

at::Tensor asks_back(at::Tensor const& x) {
  auto& self = this_worker();
  self.rpc_sync<smart_sin>("worker0", x.mul(3));  // not used
  return self.rpc_sync<smart_sin>("worker0", x.mul(2)).mul(x);
}
void circle(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<asks_back>("worker1", x).sum()});
  check_gradients(ctx, x.mul(2).sin().mul(x).sum(), {x});
}

void roots_of_their_own(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  auto const a = w[0].rpc_sync<smart_deeper>("worker1", x, 1);
  auto const b = w[0].rpc_sync<smart_deeper>("worker3", y, 2);
  w[0].rpc_sync<smart_deeper>("worker2", x, 2);  // not used
  ctx.backward({a.sum(), b.sum()});
  check_gradients(ctx, deeper_here(x, 1).sum().add(deeper_here(y, 2).sum()), {x, y});
}

void two_consumers(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const y = w[0].rpc_sync<smart_sin>("worker1", x);
  auto const z = w[0].rpc_sync<smart_mul>("worker2", y, y);
  ctx.backward({y.mul(y).add(z).add(y).sum()});
  auto const here = x.sin();
  check_gradients(ctx, here.mul(here).mul(2).add(here).sum(), {x});
}

at::Tensor relays(at::Tensor const& x) { return this_worker().rpc_sync<smart_same>("worker2", x); }
void relay(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<relays>("worker1", x).sin().sum()});
  check_gradients(ctx, x.sin().sum(), {x});
}

void to_itself(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  w[0].rpc_sync<smart_sin>("worker0", x);  // not used
  auto const z = w[0].rpc_sync<smart_mul>("worker0", x, y);
  ctx.backward({w[0].rpc_sync<smart_sin>("worker0", z).sum()});
  check_gradients(ctx, x.mul(y).sin().sum(), {x, y});
}

void parts_of_a_result(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const parts = w[0].rpc_sync<smart_split>("worker1", x);
  ctx.backward({parts[0].mul(2).add(parts[2]).sum()});
  auto const here = smart_split(x);
  check_gradients(ctx, here[0].mul(2).add(here[2]).sum(), {x});
}

void other_roots_later(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const a = w[0].rpc_sync<smart_deeper>("worker1", x, 1);
  auto const b = w[0].rpc_sync<smart_deeper>("worker2", x, 2);
  ctx.backward({a.sum()}, {.retain_graph = true});
  check_gradients(ctx, deeper_here(x, 1).sum(), {x});
  ctx.backward({b.sum()}, {.retain_graph = true});
  ctx.backward({a.mul(b).sum()});
  auto const c = deeper_here(x, 1), d = deeper_here(x, 2);
  auto const first = rig::local_gradients(c.sum(), {x})[0];
  auto const second = rig::local_gradients(d.sum(), {x})[0];
  auto const third = rig::local_gradients(c.mul(d).sum(), {x})[0];
  CHECK(same(ctx.gradient(x), first.add(second).add(third)));
}

/// Gives no gradient back.
struct Forgets : torch::autograd::Function<Forgets> {
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::variable_list backward(AutogradContext*, torch::autograd::variable_list) {
    return {at::Tensor()};
  }
};
at::Tensor smart_forgets(at::Tensor const& x) { return Forgets::apply(x); }
void undefined_gradients(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = w[0].context();
  auto const dead = w[0].rpc_sync<smart_forgets>("worker1", w[0].rpc_sync<smart_sin>("worker2", x));
  ctx.backward({w[0].rpc_sync<smart_mul>("worker1", dead, y).sum()});
  CHECK_FALSE(ctx.gradient(x).defined());
  CHECK(same(ctx.gradient(y), x.sin().detach()));
}

std::atomic<bool> smart_open{false};
at::Tensor waits(at::Tensor const& x) {
  rig::eventually([] { return smart_open.load(); });
  return x.mul(5);
}
void call_on_its_way(Workers const& w) {
  auto const x = leaf(1);
  smart_open = false;
  auto ctx = w[0].context();
  auto late = w[0].rpc_async<waits>("worker1", x);
  ctx.backward({w[0].rpc_sync<smart_sin>("worker1", x).sum()});
  check_gradients(ctx, x.sin().sum(), {x});
  smart_open = true;
  ctx.backward({late.get().sum()});
  CHECK(same(ctx.gradient(x), x.cos().add(5).detach()));
}

void many_contexts(Workers const& w) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 10; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        auto const x = leaf(10 * t + i);
        auto const& worker = w[std::size_t(t) % w.size()];
        auto ctx = worker.context();
        worker.rpc_sync<smart_sin>((t + 2) % 4, x);  // not used
        ctx.backward({worker.rpc_sync<smart_deeper>((t + 1) % 4, x, 3).sum()});
        right += same(ctx.gradient(x), rig::local_gradients(deeper_here(x, 3).sum(), {x})[0]);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == 100);
}

/// Custom functions see undefined gradients as zeros, which must not happen where none come.
struct Counted : torch::autograd::Function<Counted> {
  static inline std::atomic<int> calls = 0;
  static at::Tensor forward(AutogradContext*, at::Tensor x) { return x.mul(2); }
  static torch::autograd::variable_list backward(AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    ++calls;
    return {gradients[0].mul(2)};
  }
};
Tensors both(at::Tensor const& x, at::Tensor const& y) { return {x.mul(2), y.mul(2)}; }
Tensors both_here(at::Tensor const& x) { return {x.mul(3), Counted::apply(x).sin()}; }

// A message brings two tensors and only one of them is used: behind the other nothing runs.
void part_of_a_message(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  for (auto mode : {BackwardMode::smart, BackwardMode::fast}) {
    Counted::calls = 0;
    std::atomic<int> hook_calls = 0;
    auto ctx = w[0].context();
    auto const z = Counted::apply(y).sin();
    z.register_hook([&](at::Tensor const& gradient) {
      ++hook_calls;
      return gradient;
    });
    auto const there = w[0].rpc_sync<both>("worker1", x, z);
    auto const back = w[0].rpc_sync<both_here>("worker2", there[0]);
    ctx.backward({back[0].sum()}, {.mode = mode});
    CHECK(same(ctx.gradient(x), at::ones({3, 3}).mul(6)));
    CHECK_FALSE(ctx.gradient(y).defined());
    CHECK(ctx.gradients().size() == 1);
    CHECK(hook_calls == 0);
    CHECK(Counted::calls == 0);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("behind a tensor that is not used nothing runs", Engine, DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(part_of_a_message);
}
TEST_CASE_TEMPLATE("[DA-39] results nobody uses hold nobody up", Engine, DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(unused_result);
}
TEST_CASE_TEMPLATE("a root that touches no call passes unused ones by", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(root_without_calls);
}
TEST_CASE_TEMPLATE("a path that only another worker knows is found", Engine, DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(hidden_path);
}
TEST_CASE_TEMPLATE("workers that wait for one another in a circle go on", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(circle);
}
TEST_CASE_TEMPLATE("roots of different chains start together", Engine, DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(roots_of_their_own);
}
TEST_CASE_TEMPLATE("a received value may be used several times", Engine, DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(two_consumers);
}
TEST_CASE_TEMPLATE("a worker that only passes on takes part", Engine, DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(relay);
}
TEST_CASE_TEMPLATE("calls of a worker to itself take part", Engine, DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(to_itself);
}
TEST_CASE_TEMPLATE("a part of a result may be used", Engine, DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(parts_of_a_result);
}
TEST_CASE_TEMPLATE("later passes of a context may start at other roots", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(other_roots_later);
}
TEST_CASE_TEMPLATE("a gradient that is undefined arrives as one", Engine, DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(undefined_gradients);
}
TEST_CASE_TEMPLATE("a call that is still on its way does not matter", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(call_on_its_way);
}
TEST_CASE_TEMPLATE("ten contexts on each of ten threads pass at the same time", Engine,
                   DISTGRAD_ALL_ENGINES) {
  rig::on_cluster<Engine>(many_contexts);
}

// --- messages ------------------------------------------------------------------------------------

namespace {

using MeddledEngine = DistEngine<rig::MeddlingTransport<LoopbackTransport>, CpuQueues>;

struct Meddled {
  Meddled() : cluster(rig::Cluster<4, MeddledEngine>(with(meddling))), workers(cluster) {}
  ~Meddled() { cluster.shutdown(); }

  static MeddledEngine::Options with(std::shared_ptr<rig::Meddling> const& meddling) {
    auto options = rig::options<MeddledEngine>();
    options.discovery_delay = 1h;  // so that only the tests decide when it begins
    options.transport.meddling = meddling;
    return options;
  }
  struct Counts {
    std::uint64_t discover = 0, discovered = 0, gradient = 0, done = 0, release = 0, commit = 0;
    bool operator==(Counts const&) const = default;
    friend std::ostream& operator<<(std::ostream& out, Counts const& c) {
      return out << "discover " << c.discover << ", discovered " << c.discovered << ", gradient "
                 << c.gradient << ", done " << c.done << ", release " << c.release << ", commit "
                 << c.commit;
    }
  };
  /// The messages of a backward pass, once its part is over on every worker: until then the last of
  /// them are on their way.
  Counts counts_of(Context& ctx, Tensors const& roots, BackwardOptions const& options = {}) {
    meddling->forget();
    ctx.backward(roots, options);
    CHECK(rig::eventually([&] { return workers.run_no_pass(); }));
    auto const& m = *meddling;
    Counts const counts{m.count(FrameKind::pass_discover), m.count(FrameKind::pass_discovered),
                        m.count(FrameKind::gradient),      m.count(FrameKind::pass_done),
                        m.count(FrameKind::pass_release),  m.count(FrameKind::pass_commit)};
    CHECK(m.count_passes() == counts.discover + counts.discovered + counts.gradient + counts.done +
                                  counts.release + counts.commit);
    return counts;
  }

  /// A context whose next pass is not its first: discovery comes before the gradients.
  void pass_over(Context& ctx) { ctx.backward({leaf(9).sum()}); }

  std::shared_ptr<rig::Meddling> meddling = std::make_shared<rig::Meddling>();
  rig::Cluster<4, MeddledEngine> cluster;
  Workers workers;
};

}  // namespace

// A call that takes part has two pairs of functions: its arguments and its result. Each pair costs
// a gradient message. Where discovery is needed, each walk asks a worker once, whatever it reached
// there, and is answered.
TEST_CASE_FIXTURE(Meddled, "a local pass sends no message") {
  auto const x = leaf(1);
  auto ctx = workers[0].context();
  workers[0].rpc_sync<smart_sin>("worker1", x);  // not used
  CHECK(counts_of(ctx, {x.sum()}) == Counts{});
  auto const there = workers[0].rpc_sync<smart_sin>("worker0", x);
  CHECK(counts_of(ctx, {there.sum()}) == Counts{});
}
TEST_CASE_FIXTURE(Meddled, "the first pass asks nobody when every result is used") {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = workers[0].context();
  auto const a = workers[0].rpc_sync<smart_sin>("worker1", x);
  auto const b = workers[0].rpc_sync<smart_mul>("worker2", x, y);
  CHECK(counts_of(ctx, {a.add(b).sum()}) == Counts{.gradient = 4, .done = 2, .commit = 2});
}
TEST_CASE_FIXTURE(Meddled, "the first pass asks when a result is not used") {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = workers[0].context();
  auto const a = workers[0].rpc_sync<smart_sin>("worker1", x);
  workers[0].rpc_sync<smart_mul>("worker2", x, y);
  CHECK(counts_of(ctx, {a.sum()}) == Counts{2, 2, 2, 1, 1, 1});
}
TEST_CASE_FIXTURE(Meddled, "calls to one worker are asked about together") {
  auto const x = leaf(1), y = leaf(2);
  auto ctx = workers[0].context();
  pass_over(ctx);
  auto const a = workers[0].rpc_sync<smart_sin>("worker1", x);
  auto const b = workers[0].rpc_sync<smart_mul>("worker1", x, y);
  workers[0].rpc_sync<smart_sin>("worker2", x);  // not used
  CHECK(counts_of(ctx, {a.add(b).sum()}, {.retain_graph = true}) == Counts{2, 2, 4, 1});
  CHECK(counts_of(ctx, {a.sum()}) == Counts{2, 2, 2, 1});
}
TEST_CASE_FIXTURE(Meddled, "each worker is asked once by each walk, and is done once") {
  auto const x = leaf(1);
  auto ctx = workers[0].context();
  pass_over(ctx);
  auto root = workers[0].rpc_sync<smart_sin>("worker1", x).sum();
  for (char const* name : {"worker2", "worker3"}) {
    root = root.add(workers[0].rpc_sync<smart_sin>(name, x).sum());
  }
  CHECK(counts_of(ctx, {root}) == Counts{6, 6, 6, 3});
  auto const deep = workers[0].rpc_sync<smart_deeper>("worker1", x, 2);
  CHECK(counts_of(ctx, {deep.sum()}) == Counts{6, 6, 6, 3});
}
TEST_CASE_FIXTURE(Meddled, "a chain of calls is asked about link by link") {
  auto const x = leaf(1);
  auto ctx = workers[0].context();
  pass_over(ctx);
  auto y = x;
  for (int i = 0; i < 5; ++i) y = workers[0].rpc_sync<smart_sin>(1 + i % 2, y);
  CHECK(counts_of(ctx, {y.sum()}) == Counts{10, 10, 10, 2});
}
TEST_CASE_FIXTURE(Meddled, "FAST mode asks nobody") {
  auto const x = leaf(1);
  auto ctx = workers[0].context();
  auto const y = workers[0].rpc_sync<smart_deeper>("worker1", x, 2);
  CHECK(counts_of(ctx, {y.sum()}, {.mode = BackwardMode::fast}) ==
        Counts{.gradient = 6, .done = 3});
}
TEST_CASE_FIXTURE(Meddled, "messages that come twice count once") {
  meddling->doubles_passes = true;
  auto const x = leaf(1);
  for (auto mode : {BackwardMode::smart, BackwardMode::fast}) {
    for (auto commit : {GradientCommit::local, GradientCommit::global}) {
      for (bool is_first : {true, false}) {
        auto ctx = workers[0].context();
        if (!is_first) pass_over(ctx);
        if (mode == BackwardMode::smart) workers[0].rpc_sync<smart_sin>("worker1", x);  // not used
        auto const y = workers[0].rpc_sync<smart_deeper>("worker2", x, 3);
        ctx.backward({y.sum()}, {.mode = mode, .commit = commit});
        check_gradients(ctx, deeper_here(x, 3).sum(), {x});
      }
    }
  }
  CHECK(rig::eventually([&] { return workers.are_clean(); }));
}

}  // namespace smart_mode_tests
