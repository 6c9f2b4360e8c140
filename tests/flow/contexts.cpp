// The life of contexts: their ids, where they come to, and how they go.
#include "workers.hpp"

#include <atomic>
#include <memory>
#include <stdexcept>

#include <distgrad/core/blocking.hpp>

namespace contexts_tests {

using namespace distgrad;
using rig::Layout;
using rig::leaf;
using rig::Workers;

namespace {

at::Tensor contexts_add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }
int contexts_number(int n) { return n + 1; }
bool contexts_is_in_one() {
  return rig::error_of([] { this_worker().current_context(); }) != errc::no_context;
}
at::Tensor contexts_throw(at::Tensor const&) { throw std::runtime_error("not today"); }

template <class F>
void check_code(errc expected, F&& f) {
  CHECK(rig::error_of(f).value() == int(expected));
}

void ids(Workers const& w) {
  std::set<ContextId> seen;
  ContextId last;
  for (int i = 0; i < 200; ++i) {
    auto ctx = w[1].context();
    auto const id = ctx.id();
    CHECK(id.worker == w[1].info().id);
    CHECK(id.incarnation == w[1].info().incarnation);
    CHECK(id.sequence > last.sequence);
    CHECK(seen.insert(id).second);
    CHECK(w[1].context_part(id)->id() == id);
    CHECK(w[1].current_context() == id);
    CHECK_FALSE(w[2].has_context(id));
    last = id;
  }
  for (auto const& id : seen) {
    check_code(errc::unknown_context, [&] { w[1].context_part(id); });
  }
}

void no_nesting(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  check_code(errc::context_active, [&] { w[0].context(); });
  CHECK(w[0].current_context() == ctx.id());
  auto const text = rig::text_of([&] { w[0].context(); });
  CHECK(text.find(to_string(ctx.id())) != std::string::npos);
  {
    auto other_worker = w[1].context();  // another worker of the same process has its own
    CHECK(w[0].current_context() == ctx.id());
    CHECK(w[1].current_context() == other_worker.id());
  }
  ContextId other;
  std::thread([&] { other = w[0].context().id(); }).join();
  CHECK(other != ctx.id());
  ctx.backward({w[0].rpc_sync<contexts_add>("worker1", x, x).sum()});
  CHECK(rig::same(ctx.gradient(x), at::ones({3, 3}).mul(2)));
}

// --- release -------------------------------------------------------------------------------------

template <class Use>
void check_released(Workers const& w, std::vector<std::size_t> const& ranks, Use&& use) {
  ContextId id;
  {
    auto ctx = w[0].context();
    id = ctx.id();
    use();
    CHECK(w.all_know(id, ranks));
  }
  CHECK_FALSE(w[0].has_context(id));
  CHECK(rig::eventually([&] { return w.none_knows(id); }, std::chrono::seconds(10)));
}

void release_with_gradients(Workers const& w) {
  for (auto layout : {Layout::dense, Layout::sparse}) {
    auto const x = leaf(1, layout), y = leaf(2, layout);
    check_released(w, {0, 1, 2, 3}, [&] {
      for (int to : {1, 2, 3}) w[0].rpc_sync<contexts_add>(to, x, y);
    });
  }
}

void release_without_gradients(Workers const& w) {
  for (auto layout : {Layout::dense, Layout::sparse}) {
    auto const x = leaf(1, layout).detach(), y = leaf(2, layout).detach();
    check_released(w, {0, 1, 2, 3}, [&] {
      for (int to : {1, 2, 3}) w[0].rpc_sync<contexts_add>(to, x, y);
    });
  }
}

void release_without_tensors(Workers const& w) {
  check_released(w, {0, 1, 2, 3}, [&] {
    for (int to : {1, 2, 3}) CHECK(w[0].rpc_sync<contexts_number>(to, 4) == 5);
  });
}

at::Tensor contexts_add_further(at::Tensor const& x, int to) {
  return this_worker().rpc_sync<contexts_add>(to, x, x);
}

void release_of_nested(Workers const& w) {
  for (auto layout : {Layout::dense, Layout::sparse}) {
    auto const x = leaf(1, layout);
    check_released(w, {0, 1, 2}, [&] { w[0].rpc_sync<contexts_add_further>("worker1", x, 2); });
    check_released(w, {0, 1, 2},
                   [&] { w[0].rpc_sync<contexts_add_further>("worker1", x.detach(), 2); });
  }
}

void release_after_backward(Workers const& w) {
  auto const x = leaf(1);
  check_released(w, {1, 2}, [&] {
    auto const value = w[0].rpc_sync<contexts_add_further>("worker1", x, 2);
    CHECK(value.requires_grad());
  });
  // References held by the test do not keep a worker from forgetting.
  std::shared_ptr<DistAutogradContext> kept;
  ContextId id;
  {
    auto ctx = w[0].context();
    id = ctx.id();
    ctx.backward({w[0].rpc_sync<contexts_add>("worker1", x, x).sum()});
    kept = w[1].context_part(id);
  }
  CHECK(rig::eventually([&] { return w.none_knows(id); }));
  CHECK(kept->sends().size() == 1);
}

// --- known workers -------------------------------------------------------------------------------

void known_workers(Workers const& w) {
  auto const x = leaf(1), constant = leaf(2).detach();
  auto ctx = w[0].context();
  CHECK(ctx.known_workers().empty());
  w[0].rpc_sync<contexts_add>("worker1", x, constant);
  CHECK(ctx.known_workers() == std::set{WorkerId{1}});
  w[0].rpc_sync<contexts_add>("worker2", constant, constant);
  CHECK(ctx.known_workers() == std::set{WorkerId{1}, WorkerId{2}});
  w[0].rpc_sync<contexts_number>("worker3", 1);
  CHECK(ctx.known_workers() == std::set{WorkerId{1}, WorkerId{2}, WorkerId{3}});
  CHECK(w[1].context_part(ctx.id())->known_workers() == std::set{WorkerId{0}});
}

// --- errors and threads --------------------------------------------------------------------------

void failed_call(Workers const& w) {
  auto const x = leaf(1), y = leaf(2);
  ContextId id;
  {
    auto ctx = w[0].context();
    id = ctx.id();
    CHECK_THROWS_AS(w[0].rpc_sync<contexts_throw>("worker1", x.detach()), RemoteError);
    CHECK(w[0].current_context() == id);
    ctx.backward({w[0].rpc_sync<contexts_add>("worker1", x, y).sum()});
    rig::check_gradients(ctx, x.add(y).sum(), {x, y});
  }
  CHECK(rig::eventually([&] { return w.none_knows(id); }));
}

void failing_scope(Workers const& w) {
  ContextId id;
  auto const text = rig::text_of([&] {
    auto ctx = w[0].context();
    id = ctx.id();
    w[0].rpc_sync<contexts_throw>("worker1", leaf(1));
  });
  CHECK(text.find("not today") != std::string::npos);
  CHECK(rig::eventually([&] { return w.none_knows(id); }));
  check_code(errc::no_context, [&] { w[0].current_context(); });
}

void outside(Workers const& w) {
  check_code(errc::no_context, [&] { w[0].current_context(); });
  CHECK_FALSE(w[0].rpc_sync<contexts_is_in_one>("worker1"));
  {
    auto ctx = w[0].context();
    CHECK(w[0].rpc_sync<contexts_is_in_one>("worker1"));
    std::thread([&] {  // a thread started inside does not inherit it
      check_code(errc::no_context, [&] { w[0].current_context(); });
      CHECK_FALSE(w[0].rpc_sync<contexts_is_in_one>("worker1"));
    })
        .join();
  }
  check_code(errc::no_context, [&] { w[0].current_context(); });
  CHECK_FALSE(w[0].rpc_sync<contexts_is_in_one>("worker1"));
}

std::atomic<bool> contexts_gate{false};

at::Tensor contexts_late_leaf() {
  BlockingRegion region;
  rig::eventually([] { return contexts_gate.load(); });
  return leaf(5);
}

// The value is made outside of any context, and fetched, before it is there, in one.
void late_value(Workers const& w) {
  contexts_gate = false;
  auto const value = w[0].remote<contexts_late_leaf>("worker1");
  auto ctx = w[0].context();
  auto fetched = value.async_to_here();
  w[0].rpc_sync<contexts_number>("worker1", 1);  // calls keep their order: the fetch has arrived
  contexts_gate = true;
  ctx.backward({fetched.get().mul(3).sum()});
  auto const there = w[1].context_part(ctx.id())->gradients();
  REQUIRE(there.size() == 1);
  CHECK(rig::same(there[0].gradient, at::ones({3, 3}).mul(3)));
}

// A continuation of a call's future runs in the call's context, whatever thread it runs on.
void continuation(Workers const& w) {
  auto const x = leaf(1);
  auto ctx = w[0].context();
  auto const id = w[0].rpc_async<contexts_add>("worker1", x, x)
                      .then([&](Future<at::Tensor> const&) { return w[0].current_context(); })
                      .get();
  CHECK(id == ctx.id());
}

void drawing(Workers const& w) {
  auto ctx = w[0].context();
  auto const sum = w[0].rpc_sync<contexts_add>(w[1].name(), leaf(1), leaf(2));
  CHECK(sum.requires_grad());
  auto const dot = ctx.dot();
  auto const count = [&](std::string const& text) {
    std::size_t found = 0;
    for (auto at = dot.find(text); at != std::string::npos; at = dot.find(text, at + 1)) ++found;
    return found;
  };
  CHECK(dot.starts_with("digraph context {"));
  CHECK(count("label=\"" + w[0].name() + "\"") == 1);
  CHECK(count("label=\"leaf [") == 2);
  CHECK(count("style=dashed") == 2);  // the arguments there, the result back
  CHECK(count("label=\"rank " + to_string(w[1].info().id)) == 2);
}

}  // namespace

TEST_CASE_TEMPLATE("[DA-15] contexts have ids of their own and are known only while they live",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(ids);
}
TEST_CASE_TEMPLATE("[DA-16] a thread has one context of a worker at a time", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(no_nesting);
}
TEST_CASE_TEMPLATE("[DA-17] the end of a context reaches every worker that was called in it",
                   Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(release_with_gradients);
}
TEST_CASE_TEMPLATE("[DA-18] the end of a context reaches workers that got constants", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(release_without_gradients);
}
TEST_CASE_TEMPLATE("[DA-19] the end of a context reaches workers that got no tensors", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(release_without_tensors);
}
TEST_CASE_TEMPLATE("[DA-20] the end of a context reaches workers of nested calls", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(release_of_nested);
}
TEST_CASE_TEMPLATE("[DA-17] a context ends after a pass, whoever still holds a part of it", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(release_after_backward);
}
TEST_CASE_TEMPLATE("[DA-21] a context knows every worker that was called in it", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(known_workers);
}
TEST_CASE_TEMPLATE("a context is drawn with its messages and leaves", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(drawing);
}
TEST_CASE_TEMPLATE("[DA-22] a context stays usable after a call failed in it", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(failed_call);
}
TEST_CASE_TEMPLATE("[DA-22] a context that an error leaves is released", Engine, DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(failing_scope);
}
TEST_CASE_TEMPLATE("[DA-23] outside of a context there is no current one", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(outside);
}
TEST_CASE_TEMPLATE("[DA-24] a late value is recorded in the context of its fetch", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(late_value);
}
TEST_CASE_TEMPLATE("[DA-24] continuations run in the context of their call", Engine,
                   DISTGRAD_ENGINES) {
  rig::on_cluster<Engine>(continuation);
}

}  // namespace contexts_tests
