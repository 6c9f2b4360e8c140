#pragma once
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <distgrad/testing/engine_group.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <doctest/doctest.h>  // after libtorch: Debian's has a CHECK of its own

/// What every engine has to do, whatever carries its messages and runs its tasks. The test file of
/// a plugin, one that includes no other suite, says
///
///     struct YourRig {
///       using Engine = distgrad::DistEngine<YourTransport, distgrad::CpuQueues>;
///       static Engine::Options options() { return {}; }  // of one worker; names and ranks are set
///     };
///     using namespace distgrad::testing;
///     TEST_CASE_TEMPLATE_INVOKE(engine_conformance, YourRig);
namespace distgrad::testing {

/// Functions that the workers call.
namespace remotely {

inline at::Tensor multiply(at::Tensor const& x, at::Tensor const& y) { return x.mul(y).tanh(); }
inline std::int64_t twice(std::int64_t x) { return 2 * x; }
inline at::Tensor reversed(at::Tensor const& x) { return x.flip(0); }
inline std::string fail(std::string const& why) { throw std::runtime_error(why); }

/// Goes on from worker to worker, each of which has a part in the result.
inline at::Tensor chain(at::Tensor const& x, int hops) {
  auto& self = this_worker();
  auto const next = (self.rank() + 1) % static_cast<int>(self.group().size());
  auto const part = x.mul(self.rank() + 1).sin();
  return hops == 0 ? part : self.rpc_sync<chain>(next, part, hops - 1).mul(part);
}

inline at::Tensor leaf(int seed) {
  return at::arange(6, at::kFloat).add(seed).cos().reshape({2, 3}).set_requires_grad(true);
}
inline at::Tensor times_remote(at::Tensor const& x, RRef<at::Tensor> const& y) {
  return x.mul(y.is_owner() ? y.local_value() : y.to_here());
}
inline at::Tensor gradient_of(RRef<at::Tensor> const& leaf, ContextId context) {
  return this_worker().context_part(context)->gradient(leaf.local_value());
}

inline std::atomic<bool> is_broken{false};
struct Breaking : torch::autograd::Function<Breaking> {
  static at::Tensor forward(torch::autograd::AutogradContext*, at::Tensor x) { return x.mul(3); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    if (is_broken) throw std::runtime_error("this node is broken");
    return {gradients[0].mul(3)};
  }
};
inline at::Tensor breaking(at::Tensor const& x) { return Breaking::apply(x); }

}  // namespace remotely

/// Calls: everybody to everybody, many at once, large, nested, failing. A part of the suite.
inline void engine_calls(Workers const& w) {
  for (auto const* from : w) {
    for (auto const& to : from->group()) CHECK(from->rpc_sync<remotely::twice>(to, 21) == 42);
  }
  std::vector<Future<std::int64_t>> answers;
  for (std::int64_t i = 0; i < 500; ++i) {
    answers.push_back(w[0]->rpc_async<remotely::twice>(int(i % 4), i));
  }
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < 500; ++i) right += answers[i].get() == 2 * i;
  CHECK(right == 500);

  auto const large = at::arange(3 << 20, at::kInt);  // 12 MiB
  CHECK(w[0]->rpc_sync<remotely::reversed>("worker3", large).equal(large.flip(0)));

  try {
    w[1]->rpc_sync<remotely::fail>("worker2", "out of luck");
    FAIL("did not throw");
  } catch (RemoteError const& error) {
    CHECK(error.worker() == "worker2");
    CHECK(error.remote_text().find("out of luck") != std::string::npos);
  }
}

/// Remote values: used by their owner, by others, and gone with the last reference.
inline void engine_rrefs(Workers const& w) {
  auto value = w[0]->remote<remotely::leaf>("worker1", 1);
  auto const expected = remotely::leaf(1).detach();
  CHECK(value.to_here().detach().equal(expected));
  for (auto const* worker : w) {
    auto const to = worker->rank();
    auto const product = w[0]->rpc_sync<remotely::times_remote>(to, at::ones({2, 3}), value);
    CHECK(product.detach().equal(expected));
  }
  CHECK(w[1]->debug_info().owned_rrefs == 1);
  value = w[0]->make_rref(at::ones({1}));
  CHECK(becomes_true([&] { return w[1]->debug_info().owned_rrefs == 0; }));
}

/// Gradients through any number of workers are those of the uncut graph, in both modes.
inline void engine_gradients(Workers const& w) {
  for (auto mode : {BackwardMode::smart, BackwardMode::fast}) {
    for (int hops : {0, 1, 9}) {
      auto const x = remotely::leaf(hops);
      auto const local = [&](auto self, at::Tensor const& in, int rank, int left) -> at::Tensor {
        auto const part = in.mul(rank % 4 + 1).sin();
        return left == 0 ? part : self(self, part, rank + 1, left - 1).mul(part);
      };
      auto const root = local(local, x, 1, hops).sum();
      auto const expected = torch::autograd::grad({root}, {x}).at(0);
      auto context = w[0]->context();
      context.backward({w[0]->rpc_sync<remotely::chain>("worker1", x, hops).sum()}, {.mode = mode});
      CAPTURE(hops);
      CHECK(context.gradient(x).equal(expected));
    }
  }
  auto const remote_leaf = w[0]->remote<remotely::leaf>("worker2", 5);
  auto const x = remotely::leaf(6), y = remotely::leaf(5);
  auto context = w[0]->context();
  auto const product = w[0]->rpc_sync<remotely::times_remote>("worker3", x, remote_leaf);
  context.backward({product.sum()});
  CHECK(context.gradient(x).equal(y.detach()));
  auto const there = w[0]->rpc_sync<remotely::gradient_of>("worker2", remote_leaf, context.id());
  CHECK(there.equal(x.detach()));
}

/// Everybody runs passes at the same time.
inline void engine_concurrency(Workers const& w) {
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (auto const* self : w) {
    threads.emplace_back([self, &right] {
      for (int round = 0; round < 20; ++round) {
        auto const x = remotely::leaf(round), y = remotely::leaf(round + 1);
        auto context = self->context();
        auto value = x;
        for (int to = 0; to < 4; ++to) value = self->rpc_sync<remotely::multiply>(to, value, y);
        context.backward({value.sum()});
        auto local = x;
        for (int to = 0; to < 4; ++to) local = remotely::multiply(local, y);
        auto const expected = torch::autograd::grad({local.sum()}, {x, y});
        right += context.gradient(x).equal(expected[0]) && context.gradient(y).equal(expected[1]);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == 80);
}

/// A pass that fails names the node, stops everywhere, and can be tried again.
inline void engine_failures(Workers const& w) {
  auto const x = remotely::leaf(1);
  remotely::is_broken = true;
  {
    auto context = w[0]->context();
    auto const y = w[0]->rpc_sync<remotely::breaking>("worker2", x);
    auto const z = w[0]->rpc_sync<remotely::multiply>("worker1", y, x);
    try {
      context.backward({z.sum()});
      FAIL("did not throw");
    } catch (RemoteError const& error) {
      CHECK(error.worker() == "worker2");
      CHECK(error.remote_text().find("this node is broken") != std::string::npos);
    }
    CHECK(!context.gradient(x).defined());
  }
  remotely::is_broken = false;
  auto context = w[0]->context();
  context.backward({w[0]->rpc_sync<remotely::breaking>("worker2", x).sum()});
  CHECK(context.gradient(x).equal(at::ones({2, 3}).mul(3)));
}

/// After `leave` has ended the last worker, calls to it fail, and the others go on.
inline void engine_departure(Workers w, std::function<void()> const& leave) {
  CHECK(w[0]->rpc_sync<remotely::twice>("worker3", 1) == 2);
  leave();
  CHECK_THROWS_AS(w[0]->rpc_sync<remotely::twice>("worker3", 1), Error);
  w.pop_back();
  engine_rrefs(w);
}

/// After the group has ended, nobody is called any more.
inline void engine_end(Workers const& w, std::function<void()> const& shutdown) {
  CHECK(becomes_true([&] { return are_idle(w); }));
  shutdown();
  CHECK_THROWS_AS(w[0]->rpc_sync<remotely::twice>("worker1", 1), Error);
}

TEST_CASE_TEMPLATE_DEFINE("an engine calls, shares and differentiates", Rig, engine_conformance) {
  EngineGroup<Rig> group;
  auto const& workers = group.workers();
  SUBCASE("in peace") {
    engine_calls(workers);
    engine_rrefs(workers);
    engine_gradients(workers);
    engine_concurrency(workers);
    engine_failures(workers);
    engine_end(workers, [&] { group.shutdown(); });
  }
  SUBCASE("after a worker has left") {
    engine_departure(workers, [&] { group[3].stop(); });
  }
}

}  // namespace distgrad::testing
