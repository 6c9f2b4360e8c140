// A program built with bounds: who asks for more than there is room for is told so, by the macro's
// name, and nothing else suffers. The bounds are in tests/CMakeLists.txt.
#include "../flow/rig.hpp"

#include <malloc.h>

#include <array>
#include <future>
#include <latch>

#include <ATen/ops/ones.h>

namespace {
namespace bounded {

using namespace std::chrono_literals;
using distgrad::errc;
using distgrad::Future;
using distgrad::RRef;
using Engine = distgrad::DistEngine<distgrad::LoopbackTransport, distgrad::InlineQueues>;

int add_one(int x) { return x + 1; }
at::Tensor twice(at::Tensor const& x) { return x.mul(2); }
at::Tensor make(std::int64_t floats) { return at::ones({floats}); }
std::int64_t elements(RRef<at::Tensor> const& x) { return x.is_owner(); }

constexpr std::int64_t too_many_floats = DISTGRAD_MAX_FRAME_BYTES / 4 + 1;

/// Whether `f` throws `code` with a text that names `macro`.
template <class F>
bool names(char const* macro, F&& f, errc code = errc::limit_reached) {
  try {
    f();
  } catch (distgrad::Error const& error) {
    CAPTURE(error.what());
    CHECK(error.code() == code);
    return std::string(error.what()).find(macro) != std::string::npos;
  }
  return false;
}

template <std::size_t N>
struct Group : rig::Cluster<N, Engine> {
  using rig::Cluster<N, Engine>::Cluster;
  void poll() {
    for (auto& engine : *this) engine->poll();
  }
  template <class... Futures>
  void finish(Futures const&... futures) {
    REQUIRE(rig::eventually([&] {
      poll();
      return (futures.is_ready() && ...);
    }));
  }
  /// Serves all but worker0 on a thread, as long as it lives.
  struct Servers {
    explicit Servers(Group& group)
        : thread([this, &group] {
            while (!ending) {
              for (std::size_t i = 1; i < N; ++i)
                group[i].poll({.until = distgrad::Clock::now() + 1ms});
            }
          }) {}
    ~Servers() {
      ending = true;
      thread.join();
    }
    std::atomic<bool> ending{false};
    std::thread thread;
  };
};

/// Holds a context on a thread of its own, with a call's result and leaf in it.
class Holder {
 public:
  explicit Holder(Engine& engine)
      : thread_([this, &engine] {
          auto context = engine.context();
          auto const x = at::ones({2}).set_requires_grad(true);
          auto const y = engine.rpc_sync<twice>(1, x);
          ready.count_down();
          go_on.wait();
          context.backward({y.sum()});
          right = context.gradient(x).equal(at::ones({2}).mul(2));
        }) {}
  ~Holder() { join(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

  std::latch ready{1}, go_on{1};
  std::atomic<bool> right{false};

 private:
  std::thread thread_;
};

}  // namespace bounded
}  // namespace

using namespace bounded;

TEST_CASE("a group with more peers than there is room for is not made") {
  CHECK(names("DISTGRAD_MAX_PEERS", [] { rig::Cluster<DISTGRAD_MAX_PEERS + 2, Engine>(); }));
  Group<DISTGRAD_MAX_PEERS + 1> fits;
}

TEST_CASE("limits beyond the largest frame are refused, smaller ones are not") {
  auto options = rig::options<Engine>();
  options.limits.max_payload_bytes = DISTGRAD_MAX_FRAME_BYTES + 1;
  CHECK(names("DISTGRAD_MAX_FRAME_BYTES", [&] { Engine engine(options); }));
  options.limits.max_payload_bytes = DISTGRAD_MAX_FRAME_BYTES / 2;
  Engine engine(options);
}

TEST_CASE("a call or an answer larger than a frame fails alone") {
  Group<2> group;
  auto const small = group[0].rpc_async<twice>(1, at::ones({4}));
  auto const call = group[0].rpc_async<twice>(1, at::ones({too_many_floats}));
  auto const answer = group[0].rpc_async<make>(1, too_many_floats);
  auto const next = group[0].rpc_async<add_one>(1, 1);
  group.finish(small, call, answer, next);
  constexpr auto code = errc::frame_too_large;
  CHECK(names(
      "DISTGRAD_MAX_FRAME_BYTES", [&] { call.get(); }, code));
  CHECK(names(
      "DISTGRAD_MAX_FRAME_BYTES", [&] { answer.get(); }, code));
  CHECK(small.get().equal(at::ones({4}).mul(2)));
  CHECK(next.get() == 2);
}

TEST_CASE("one call too many is refused where it is made; the others are answered") {
  Group<2> group;
  std::vector<Future<int>> calls;
  for (int i = 0; i < DISTGRAD_MAX_CALLS; ++i) calls.push_back(group[0].rpc_async<add_one>(1, i));
  CHECK(names("DISTGRAD_MAX_CALLS", [&] { group[0].rpc_async<add_one>(1, 1); }));
  CHECK(names("DISTGRAD_MAX_CALLS", [&] { group[0].remote<make>(1, 1); }));
  for (int i = 0; i < DISTGRAD_MAX_CALLS; ++i) {
    group.finish(calls[std::size_t(i)]);
    CHECK(calls[std::size_t(i)].get() == i + 1);
  }
  typename Group<2>::Servers servers(group);
  for (int i = 0; i < 20; ++i) CHECK(group[0].rpc_sync<add_one>(1, i) == i + 1);
}

TEST_CASE("one call too many is declined where it is served; what it brought is counted out") {
  Group<3> group;
  auto const value = group[0].make_rref(at::ones({2}));
  std::vector<Future<std::int64_t>> calls;
  for (int i = 0; i < DISTGRAD_MAX_CALLS; ++i) {
    calls.push_back(group[0].rpc_async<elements>(1, value));
  }
  std::vector<Future<int>> others;
  for (int i = 0; i < DISTGRAD_MAX_CALLS; ++i) others.push_back(group[2].rpc_async<add_one>(1, i));
  int served = 0, declined = 0;
  auto const count = [&](auto const& call) {
    group.finish(call);
    if (!call.error()) return void(++served);
    ++declined;
    CHECK(names("DISTGRAD_MAX_CALLS", [&] { call.get(); }));
  };
  for (auto const& call : calls) count(call);
  for (auto const& call : others) count(call);
  CHECK(served >= DISTGRAD_MAX_CALLS);
  CHECK(declined >= 1);
  CHECK(rig::eventually([&] {
    group.poll();
    return group[0].debug_info().forks == 0 && group[0].debug_info().owned_rrefs == 1;
  }));
}

TEST_CASE("no call is begun while too many bytes wait to be sent") {
  Group<2> group;
  constexpr std::int64_t floats = DISTGRAD_MAX_UNSENT_BYTES / 8 + 1;  // two are too many
  auto const one = group[0].rpc_async<twice>(1, at::ones({floats}));
  auto const two = group[0].rpc_async<twice>(1, at::ones({floats}));
  CHECK(names("DISTGRAD_MAX_UNSENT_BYTES", [&] { group[0].rpc_async<add_one>(1, 1); }));
  group.finish(one, two);
  CHECK(two.get().numel() == floats);
  auto const three = group[0].rpc_async<add_one>(1, 1);
  group.finish(three);
  CHECK(three.get() == 2);
}

TEST_CASE("one context too many is refused, here and for a call that would bring it") {
  Group<3> group;
  typename Group<3>::Servers servers(group);
  auto context = group[2].context();
  auto const x = at::ones({2}).set_requires_grad(true);
  {
    std::array<std::unique_ptr<Holder>, DISTGRAD_MAX_CONTEXTS> holders;
    for (auto& holder : holders) {
      holder = std::make_unique<Holder>(group[0]);
      holder->ready.wait();
    }
    CHECK(names("DISTGRAD_MAX_CONTEXTS", [&] { group[0].context(); }));
    CHECK(names("DISTGRAD_MAX_CONTEXTS", [&] { group[2].rpc_sync<twice>(1, x); }));
    for (auto& holder : holders) {  // one by one: there may be fewer passes than contexts
      holder->go_on.count_down();
      holder->join();
      CHECK(holder->right);
    }
  }
  REQUIRE(rig::eventually([&] { return group[1].debug_info().autograd_contexts == 0; }));
  context.backward({group[2].rpc_sync<twice>(1, x).sum()});
  CHECK(context.gradient(x).equal(at::ones({2}).mul(2)));
  Holder again(group[0]);
  again.ready.wait();
  again.go_on.count_down();
  again.join();
  CHECK(again.right);
}

TEST_CASE("one backward pass too many is refused; those that run are right, and so is the next") {
  Group<2> group;
  auto context = group[0].context();
  auto const x = at::ones({2}).set_requires_grad(true);
  auto servers = std::make_unique<Group<2>::Servers>(group);
  auto const y = group[0].rpc_sync<twice>(1, x);
  std::array<Holder, DISTGRAD_MAX_PASSES> holders{Holder(group[0]), Holder(group[0])};
  for (auto& holder : holders) holder.ready.wait();
  servers.reset();  // nobody answers: the passes stay
  for (auto& holder : holders) holder.go_on.count_down();
  REQUIRE(rig::eventually(
      [&] { return group[0].debug_info().backward_passes == DISTGRAD_MAX_PASSES; }));
  CHECK(names("DISTGRAD_MAX_PASSES", [&] { context.backward({y.sum()}); }));
  typename Group<2>::Servers again(group);
  for (auto& holder : holders) {
    holder.join();
    CHECK(holder.right);
  }
  context.backward({y.sum()});
  CHECK(context.gradient(x).equal(at::ones({2}).mul(2)));
}

TEST_CASE("a worker that has no room for a pass of another one fails that pass, and no other") {
  Group<3> group;
  typename Group<3>::Servers servers(group);
  std::latch arrived(DISTGRAD_MAX_PASSES), go_on(1);
  auto const held = [&] {
    auto context = group[0].context();
    auto const leaf = at::ones({2}).set_requires_grad(true);
    auto const x = leaf.mul(1);
    x.register_hook([&](at::Tensor gradient) {  // worker1's part is done, the pass is not
      arrived.count_down();
      go_on.wait();
      return gradient;
    });
    context.backward({group[0].rpc_sync<twice>(1, x).sum()});
    return context.gradient(leaf).equal(at::ones({2}).mul(2));
  };
  std::array<std::future<bool>, DISTGRAD_MAX_PASSES> passes;
  for (auto& pass : passes) pass = std::async(std::launch::async, held);
  arrived.wait();
  CHECK(group[1].debug_info().backward_passes == DISTGRAD_MAX_PASSES);
  auto const x = at::ones({2}).set_requires_grad(true);
  auto const backward = [&](std::size_t others) {
    REQUIRE(rig::eventually([&] { return group[1].debug_info().autograd_contexts == others; }));
    auto context = group[2].context();
    context.backward({group[2].rpc_sync<twice>(1, x).sum()});
    return context.gradient(x);
  };
  CHECK(names("DISTGRAD_MAX_PASSES", [&] { backward(passes.size()); }));
  CHECK(rig::text_of([&] { backward(passes.size()); }).find("worker1") != std::string::npos);
  go_on.count_down();
  for (auto& pass : passes) CHECK(pass.get());
  CHECK(rig::eventually([&] { return group[1].debug_info().backward_passes == 0; }));
  CHECK(backward(0).equal(at::ones({2}).mul(2)));
}

TEST_CASE("one remote reference too many is refused, however it comes") {
  Group<2> group;
  typename Group<2>::Servers servers(group);
  auto& self = group[0];
  auto const elsewhere = std::make_unique<RRef<at::Tensor>>(self.remote<make>(1, 1));
  elsewhere->to_here();
  std::vector<RRef<at::Tensor>> own;
  while (own.size() + 1 < DISTGRAD_MAX_RREFS) own.push_back(self.make_rref(at::ones({1})));
  CHECK(names("DISTGRAD_MAX_RREFS", [&] { self.make_rref(at::ones({1})); }));
  CHECK(names("DISTGRAD_MAX_RREFS", [&] { self.remote<make>(1, 1); }));
  CHECK(names("DISTGRAD_MAX_RREFS", [&] { self.remote<make>(0, 1); }));
  CHECK(self.rpc_sync<elements>(1, own.front()) == 0);  // the other worker has room
  own.pop_back();
  own.push_back(self.make_rref(at::ones({1})));

  // A value that others want to live here, and a reference that comes with a call.
  auto const from_there = [](Engine& engine) {
    auto const value = engine.make_rref(at::ones({1}));
    CHECK(names("DISTGRAD_MAX_RREFS", [&] { engine.rpc_sync<elements>(0, value); }));
    auto const made = engine.remote<make>(0, 1);
    CHECK(names("DISTGRAD_MAX_RREFS", [&] { made.to_here(); }));
  };
  std::atomic<bool> done{false};
  std::thread caller([&] {
    from_there(group[1]);
    done = true;
  });
  while (!done) self.poll();
  caller.join();
  CHECK(self.rpc_sync<add_one>(1, 1) == 2);
}

TEST_CASE("memory stays what it is, however long the program runs") {
  Group<2> group;
  typename Group<2>::Servers servers(group);
  auto const work = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      auto const value = group[0].remote<make>(1, 2);
      auto context = group[0].context();
      auto const x = at::ones({2}).set_requires_grad(true);
      auto const y = group[0].rpc_sync<twice>(1, x).add(value.to_here());
      context.backward({y.sum()});
    }
  };
  work(200);  // until as many released contexts are remembered as there may be
  auto const before = ::mallinfo2().uordblks;
  work(1000);
  auto const after = ::mallinfo2().uordblks;
  MESSAGE("bytes more after 1000 rounds: ", std::int64_t(after) - std::int64_t(before));
  CHECK(after < before + 16384);
}
