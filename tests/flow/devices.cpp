// Values and gradients on devices whose kernels run late: whatever order of kernels streams and
// events allow, they are those of the uncut graph on the host. And what orders the streams is
// needed: left out, numbers become wrong.

#include "device_workers.hpp"

#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/sgd.h>

#include <ATen/ops/arange.h>

namespace devices_tests {

namespace {
namespace devices {

using namespace distgrad;
using distgrad::testing::simulated;
using distgrad::testing::SimulatedDevices;
using rig::DeviceCluster;
using rig::Missing;
using rig::StreamQueues;
using rig::Without;

c10::Device const first(simulated, 0), second(simulated, 1);

c10::Stream some_stream(c10::Device device = first) {
  return c10::impl::VirtualGuardImpl(simulated).getStreamFromGlobalPool(device);
}
void follow(c10::Stream before, c10::Stream after) {
  auto event = record_event(before);
  block_stream(after, event);
}

at::Tensor slowly(at::Tensor x) {
  for (int i = 0; i < 4; ++i) x = x.mul(2).div(2);
  return x;
}
at::Tensor values(double seed) { return at::arange(6, at::kFloat).mul(0.3).add(seed).sin(); }
at::Tensor leaf(double seed, c10::Device device = first) {
  return slowly(values(seed).to(device)).set_requires_grad(true);
}

// --- functions -----------------------------------------------------------------------------------

at::Tensor make_leaf(double seed) { return leaf(seed); }
at::Tensor scale(at::Tensor const& x, RRef<at::Tensor> const& w) {
  return slowly(x.mul(w.local_value()));
}
/// On streams and a device of its own choice; its result is on the current stream, as always.
at::Tensor bend(at::Tensor const& x) {
  auto const here = current_stream(first), side = some_stream();
  at::Tensor y, z;
  {
    follow(here, side);
    StreamScope const on(side);
    keep_memory(x.storage().data_ptr(), side);
    y = slowly(x.tanh());
  }
  z = slowly(x.to(second).mul(x.to(second))).to(first);
  follow(side, here);
  keep_memory(y.storage().data_ptr(), here);
  return slowly(y.add(z));
}
at::Tensor through(std::string const& next, at::Tensor const& x) {
  return this_worker().rpc_sync<bend>(next, x.add(1)).mul(x);
}
bool is_made(RRef<at::Tensor> const& value) { return value.local_value().defined(); }
/// What functions share without the library's knowledge.
at::Tensor& shared() {
  static at::Tensor tensor;
  return tensor;
}
void set_shared(double seed) { shared() = slowly(values(seed).to(first)); }
void change_shared() { shared().add_(slowly(shared()).mul(0.5)); }
at::Tensor get_shared() { return shared(); }

// --- exactness -----------------------------------------------------------------------------------

at::Tensor uncut(at::Tensor const& x, at::Tensor const& w) {
  auto const bent = [](at::Tensor const& v) {
    return slowly(slowly(v.tanh()).add(slowly(v.mul(v))));
  };
  auto const y = slowly(x.mul(w));
  return bent(y.add(1)).mul(y).mul(x).sum();
}
std::vector<at::Tensor> uncut_gradients(double x_seed, double w_seed) {
  auto const x = values(x_seed).set_requires_grad(true);
  auto const w = values(w_seed).set_requires_grad(true);
  return torch::autograd::grad({uncut(x, w)}, {x, w});
}
bool same(at::Tensor const& on_device, at::Tensor const& expected) {
  return on_device.defined() && on_device.detach().cpu().equal(expected.detach());
}

TEST_CASE("a backward pass over devices of three workers is exact for any order of kernels") {
  auto const expected = uncut_gradients(0.4, 0.9);
  for (auto const mode : {BackwardMode::smart, BackwardMode::fast}) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      SimulatedDevices const simulation(seed);
      DeviceCluster<3> cluster;
      StreamScope const own(some_stream());
      auto const w = cluster[0].make_rref(leaf(0.9));
      auto const there = cluster[0].remote<make_leaf>("worker1", 0.9);
      auto const x = leaf(0.4);
      auto ctx = cluster[0].context();
      auto const y = cluster[0].rpc_sync<scale>("worker1", x, there);
      auto const z = cluster[0].rpc_sync<through>("worker1", std::string("worker2"), y);
      auto const loss = z.mul(x).sum();
      ctx.backward({loss}, {.mode = mode});
      CHECK(same(ctx.gradient(x), expected[0]));
      auto const on_owner = cluster[1].context_part(ctx.id())->gradients();
      REQUIRE(on_owner.size() == 1);
      CHECK(same(on_owner[0].gradient, expected[1]));
      CHECK(simulation.error() == "");
    }
  }
}

TEST_CASE("a training step that follows another finds parameters and gradients in order") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SimulatedDevices const simulation(seed);
    DeviceCluster<2> cluster;
    auto& trainer = cluster[0];
    StreamScope const own(some_stream());
    auto const w = trainer.remote<make_leaf>("worker1", 0.9);
    auto expected = values(0.9).set_requires_grad(true);
    torch::optim::SGD local({expected}, torch::optim::SGDOptions(0.1).momentum(0.9));
    DistributedOptimizer<torch::optim::SGD> optimizer(trainer, {w},
                                                      torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 4; ++step) {
      auto const x = values(step);
      local.zero_grad();
      slowly(x.mul(expected)).tanh().sum().backward();
      local.step();
      auto ctx = trainer.context();
      ctx.backward({trainer.rpc_sync<scale>("worker1", x.to(first), w).tanh().sum()});
      optimizer.step(ctx);
    }
    CHECK(same(w.to_here(), expected));
  }
}

TEST_CASE("a pass makes the host wait for nothing but what it sends") {
  SimulatedDevices const simulation;
  DeviceCluster<1> cluster;
  StreamScope const own(some_stream());
  auto const x = leaf(0.4), w = leaf(0.9);
  auto ctx = cluster[0].context();
  auto const loss = uncut(x, w);
  auto const before = SimulatedDevices::host_waits();
  ctx.backward({loss});
  auto const gradient = ctx.gradient(x);
  CHECK(SimulatedDevices::host_waits() == before);
  CHECK(same(gradient, uncut_gradients(0.4, 0.9)[0]));
}

// --- what orders streams is needed ---------------------------------------------------------------

constexpr std::uint64_t seeds = 24;

/// Runs `program(missing)`, which says whether its numbers were right, for many orders of kernels.
template <class Program>
void check_needs(Missing what, Program program) {
  for (auto const missing : {Missing::nothing, what}) {
    std::uint64_t wrong = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      SimulatedDevices const simulation(seed);
      wrong += !program(missing);
      StreamQueues::missing = Missing::nothing;
    }
    CAPTURE(int(missing));
    CHECK((missing == Missing::nothing ? wrong == 0 : wrong > 0));
  }
}

TEST_CASE("who takes a result must wait for the stream it arrived on") {
  DeviceCluster<2> cluster;
  check_needs(Missing::waits, [&](Missing missing) {
    auto const x = values(0.5).to(first);
    auto const expected = bend(x).cpu();
    StreamScope const own(some_stream());
    auto const future = cluster[0].rpc_async<bend>("worker1", x);
    future.wait();
    Without const without(missing);
    return same(future.get(), expected);
  });
}

TEST_CASE("what continues a call must wait for the stream it was continued on") {
  DeviceCluster<2> cluster;
  check_needs(Missing::waits, [&](Missing missing) {
    auto const x = values(0.5).to(first);
    auto const expected = bend(x).add(1).cpu();
    auto const future =
        cluster[0].rpc_async<bend>("worker1", x).then([](Future<at::Tensor> const& y) {
          return slowly(y.get().add(1));
        });
    future.wait();
    Without const without(missing);
    return same(future.get(), expected);
  });
}

TEST_CASE("memory of a result is kept for the stream that uses it") {
  DeviceCluster<2> cluster;
  check_needs(Missing::keeps, [&](Missing missing) {
    auto const x = values(0.5).to(first);
    auto const expected = bend(x).cpu();
    StreamScope const own(some_stream());
    Without const without(missing);
    auto result = cluster[0].rpc_sync<bend>("worker1", x);
    auto const used = slowly(result.add(0));
    result.reset();
    return same(used, expected);
  });
}

TEST_CASE("a remote value's owner must wait for the stream that made it") {
  DeviceCluster<2> cluster;
  check_needs(Missing::waits, [&](Missing missing) {
    auto const value = cluster[0].remote<make_leaf>("worker0", 0.7);
    cluster[0].rpc_async<is_made>("worker0", value).wait();  // its answer would order streams
    Without const without(missing);
    return same(value.local_value(), values(0.7));
  });
}

TEST_CASE("functions that share a value must run on a common stream") {
  DeviceCluster<2> cluster;
  check_needs(Missing::common_stream, [&](Missing missing) {
    Without const without(missing);
    cluster[0].rpc_sync<set_shared>("worker1", 0.7);
    for (int i = 0; i < 4; ++i) cluster[0].rpc_sync<change_shared>("worker1");
    auto expected = values(0.7);
    for (int i = 0; i < 4; ++i) expected.add_(expected.mul(0.5));
    return same(cluster[0].rpc_sync<get_shared>("worker1"), expected);
  });
}

TEST_CASE("gradients that arrive must be waited for by the stream they came to") {
  DeviceCluster<2> cluster;
  auto const expected = [] {
    auto const x = values(0.4).set_requires_grad(true);
    return torch::autograd::grad({slowly(slowly(x.tanh()).add(slowly(x.mul(x)))).sum()}, {x})[0];
  }();
  check_needs(Missing::waits, [&](Missing missing) {
    StreamScope const own(some_stream());
    auto const x = leaf(0.4);
    auto ctx = cluster[0].context();
    auto const loss = cluster[0].rpc_sync<bend>("worker1", x).sum();
    SimulatedDevices::synchronize();  // so that nothing of before is missed
    Without const without(missing);
    ctx.backward({loss});
    return same(ctx.gradient(x), expected);
  });
}

TEST_CASE("who reads a gradient must wait for the stream that summed it") {
  DeviceCluster<1> cluster;
  auto const expected = uncut_gradients(0.4, 0.9);
  check_needs(Missing::waits, [&](Missing missing) {
    auto const x = leaf(0.4), w = leaf(0.9);
    auto ctx = cluster[0].context();
    ctx.backward({uncut(x, w)});
    StreamScope const other(some_stream());
    Without const without(missing);
    return same(ctx.gradient(w), expected[1]);
  });
}

TEST_CASE("a pass that adds to gradients must wait for who reads them") {
  DeviceCluster<1> cluster;
  auto const expected = uncut_gradients(0.4, 0.9);
  check_needs(Missing::waits, [&](Missing missing) {
    auto const x = leaf(0.4), w = leaf(0.9);
    auto ctx = cluster[0].context();
    auto const loss = uncut(x, w);
    ctx.backward({loss}, {.retain_graph = true});
    at::Tensor read;
    auto const reader = some_stream();
    SimulatedDevices::synchronize();
    {
      StreamScope const other(reader);
      auto busy = values(0).to(first);
      for (int i = 0; i < 12; ++i) busy = slowly(busy);
      read = ctx.gradient(w).add(0);
    }
    Without const without(missing);
    ctx.backward({loss});
    StreamScope const other(reader);
    return same(read, expected[1]);
  });
}

}  // namespace devices
}  // namespace

}  // namespace devices_tests
