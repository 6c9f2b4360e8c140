// Tensors on devices: where arguments, results and gradients go, and what is wrong with a map. The
// devices are simulated: a copy that nothing waits for gives wrong numbers.

#include "simulated.hpp"
#include "workers.hpp"

#include <torch/optim/sgd.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/zeros.h>

DISTGRAD_DEVICE_ENGINE(template, LoopbackTransport);
DISTGRAD_DEVICE_ENGINE(template, TcpTransport);

namespace device_maps_tests {

namespace {
namespace device_maps {

using namespace distgrad;
using distgrad::testing::simulated;
using distgrad::testing::SimulatedDevices;
using rig::SimulatedLoopback;
using rig::SimulatedQueues;
using rig::Workers;

c10::Device const first(simulated, 0), second(simulated, 1), host(c10::kCPU);
char const* const zero = "privateuseone:0";
char const* const one = "privateuseone:1";

DeviceMap const crossing = {{zero, one}, {one, zero}};
DeviceMap const parallel = {{zero, zero}, {one, one}};

/// Runs `body` on three workers, for some orders of what the devices do. Everybody has `maps`.
template <class Engine, class Body>
void on_devices(DeviceMaps const& maps, Body body, int times = 4) {
  for (int i = 0; i < times; ++i) {
    auto options = rig::options<Engine>();
    options.device_maps = maps;
    rig::Cluster<3, Engine> cluster(std::move(options));
    Workers const workers(cluster);
    body(workers);
    CHECK(rig::eventually([&] { return workers.are_clean(); }));
    cluster.shutdown();
  }
}

at::Tensor values(double seed) {
  return at::arange(9, at::kFloat).mul(0.25).add(seed).sin().reshape({3, 3});
}
at::Tensor leaf_on(c10::Device device, double seed) {
  return values(seed).to(device).set_requires_grad(true);
}
/// The twin of a tensor on the host: what the test expects is computed there.
at::Tensor twin(at::Tensor const& tensor) {
  auto copy = tensor.detach().cpu().clone();
  return copy.set_requires_grad(tensor.requires_grad());
}
bool same(at::Tensor const& on_device, at::Tensor const& expected) {
  return on_device.detach().cpu().equal(expected.detach());
}
at::Tensor slowly(at::Tensor x) {
  for (int i = 0; i < 6; ++i) x = x.mul(2).div(2);
  return x;
}

// --- functions -----------------------------------------------------------------------------------

std::vector<std::string> devices_of(std::vector<at::Tensor> const& tensors) {
  std::vector<std::string> names;
  for (auto const& tensor : tensors) {
    names.push_back(tensor.defined() ? tensor.device().str() : "none");
  }
  return names;
}
at::Tensor product(at::Tensor const& x, at::Tensor const& y) { return slowly(x.mul(y)); }
at::Tensor squared(at::Tensor const& x) { return slowly(x).mul(x); }
at::Tensor moved(at::Tensor const& x, std::string const& device) {
  return x.to(c10::Device(device));
}
at::Tensor on_host(at::Tensor const& x) { return x.cpu(); }
at::Tensor squared_by(at::Tensor const& x, std::string const& worker) {
  return this_worker().rpc_sync<squared>(worker, x.add(1));
}
at::Tensor parameter_on(std::string const& device, double seed) {
  return leaf_on(c10::Device(device), seed);
}
at::Tensor times_parameter(at::Tensor const& x, RRef<at::Tensor> const& parameter) {
  return slowly(x.mul(parameter.local_value()));
}
std::string device_of_value(RRef<at::Tensor> const& value) {
  return value.local_value().device().str();
}
at::Tensor gradient_there(RRef<at::Tensor> const& value) {
  auto& self = this_worker();
  return self.context_part(self.current_context())->gradient(value.local_value());
}
std::string error_of_call(std::string const& to, std::string const& device) {
  try {
    this_worker().rpc_sync<squared>(to, values(1).to(c10::Device(device)));
  } catch (Error const& error) {
    return error.code() == errc::unsupported_tensor ? error.what() : "another error";
  }
  return "no error";
}

// --- placement -----------------------------------------------------------------------------------

void places(Workers const& w) {
  auto const x = values(1).to(first), y = values(2).to(second), z = values(3);
  CHECK(w[0].rpc_sync<devices_of>("worker1", std::vector{x, y, z, at::Tensor()}) ==
        std::vector<std::string>{one, zero, "cpu", "none"});
  auto const back = w[0].rpc_sync<product>("worker1", x, x);
  CHECK(back.device() == first);
  CHECK(same(back, values(1).mul(values(1))));
  auto const sent = w[0].rpc_async<squared>("worker1", slowly(y));
  CHECK(same(sent.get(), values(2).mul(values(2))));
  CHECK(sent.get().device() == second);
  // From there on to the third worker: twice crossed, twice back.
  auto const far = w[0].rpc_sync<squared_by>("worker1", x, std::string("worker2"));
  CHECK(far.device() == first);
  CHECK(same(far, values(1).add(1).mul(values(1).add(1))));
}

void asynchronous_calls(Workers const& w) {
  std::vector<Future<at::Tensor>> results;
  for (int i = 0; i < 20; ++i) {
    results.push_back(
        w[0].rpc_async<squared>(i % 2 ? "worker1" : "worker2", slowly(values(i).to(first))));
  }
  for (int i = 0; i < 20; ++i) {
    CHECK(same(results[std::size_t(i)].get(), values(i).mul(values(i))));
  }
}

void host_to_device(Workers const& w) {
  auto const x = values(1).set_requires_grad(true);
  CHECK(w[0].rpc_sync<devices_of>("worker1", std::vector{x, at::Tensor(x)}) ==
        std::vector<std::string>{one, one});
  auto ctx = w[0].context();
  auto const back = w[0].rpc_sync<squared>("worker1", x);
  CHECK(back.device() == host);
  ctx.backward({back.sum()});
  CHECK(ctx.gradient(x).device() == host);
  CHECK(same(ctx.gradient(x), x.mul(2)));
}

// --- gradients -----------------------------------------------------------------------------------

void check_pass(Workers const& w, c10::Device device, BackwardMode mode) {
  auto const x = leaf_on(device, 1), y = leaf_on(device, 2);
  auto const there = w[0].remote<parameter_on>("worker1", device == first ? one : zero, 3.0);
  auto ctx = w[0].context();
  auto const a = w[0].rpc_sync<product>("worker1", slowly(x.mul(y)), y);
  auto const b = w[0].rpc_sync<times_parameter>("worker1", a, there);
  auto const c = w[0].rpc_sync<squared_by>("worker1", b.add(x), std::string("worker2"));
  ctx.backward({c.sum()}, {.mode = mode});
  auto const tx = twin(x), ty = twin(y), tp = values(3).set_requires_grad(true);
  auto const inner = tx.mul(ty).mul(ty).mul(tp).add(tx).add(1);
  auto const expected = rig::local_gradients(inner.mul(inner).sum(), {tx, ty, tp});
  CHECK(ctx.gradient(x).device() == device);
  CHECK(at::allclose(ctx.gradient(x).cpu(), expected[0]));
  CHECK(at::allclose(ctx.gradient(y).cpu(), expected[1]));
  auto const remote = w[0].rpc_sync<gradient_there>("worker1", there);
  CHECK(remote.device() == device);
  CHECK(at::allclose(remote.cpu(), expected[2]));
}

void gradients_return(Workers const& w) {
  for (auto const device : {first, second}) {
    for (auto const mode : {BackwardMode::smart, BackwardMode::fast}) check_pass(w, device, mode);
  }
}

void second_order(Workers const& w) {
  auto const x = leaf_on(first, 1);
  auto ctx = w[0].context();
  auto const cube = w[0].rpc_sync<product>("worker1", w[0].rpc_sync<squared>("worker1", x), x);
  auto const once = ctx.grad({cube.sum()}, {x}, {.create_graph = true});
  CHECK(once[0].device() == first);
  auto const twice = ctx.grad({once[0].sum()}, {x});
  CHECK(twice[0].device() == first);
  CHECK(at::allclose(twice[0].cpu(), values(1).mul(6)));
}

// --- references ----------------------------------------------------------------------------------

void references(Workers const& w) {
  auto const value = w[0].remote<parameter_on>("worker1", std::string(one), 1.0);
  CHECK(w[0].rpc_sync<device_of_value>("worker1", value) == one);
  auto const here = value.to_here();
  CHECK(here.device() == first);
  CHECK(same(here, values(1)));
  auto const mine = w[0].make_rref(slowly(values(2).to(first)));
  auto const theirs =
      w[0].rpc_sync<[](RRef<at::Tensor> const& r) { return r.to_here(); }>("worker1", mine);
  CHECK(theirs.device() == first);
  CHECK(same(theirs, values(2)));
  auto const made = w[0].remote<product>("worker1", values(3).to(second), values(4).to(second));
  CHECK(same(made.to_here(), values(3).mul(values(4))));
  auto ctx = w[0].context();
  ctx.backward({value.to_here().sum()});
  auto const gradient = w[0].rpc_sync<gradient_there>("worker1", value);
  CHECK(same(gradient, at::ones({3, 3})));
}

void trains(Workers const& w) {
  auto const parameter = w[0].remote<parameter_on>("worker1", std::string(one), 1.0);
  DistributedOptimizer<torch::optim::SGD> optimizer(w[0], {parameter},
                                                    torch::optim::SGDOptions(0.1).momentum(0.9));
  auto const alone = values(1).set_requires_grad(true);
  torch::optim::SGD reference({alone}, torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 4; ++step) {
    auto const x = values(step).to(first);
    {
      auto ctx = w[0].context();
      auto const y = w[0].rpc_sync<times_parameter>("worker1", x, parameter);
      ctx.backward({y.mul(y).sum()});
      optimizer.step(ctx);
    }
    reference.zero_grad();
    auto const y = values(step).mul(alone);
    y.mul(y).sum().backward();
    reference.step();
  }
  CHECK(at::allclose(parameter.to_here().cpu(), alone));
}

// --- what is refused -----------------------------------------------------------------------------

bool has(std::string const& text, std::initializer_list<char const*> words) {
  for (auto const* word : words) {
    if (text.find(word) == text.npos) {
      MESSAGE(text << " lacks " << word);
      return false;
    }
  }
  return true;
}

/// Only calls to worker1 have a map, and only for its second device.
void unmapped(Workers const& w) {
  auto const x = values(1).to(first), y = values(2).to(second);
  for (int i = 0; i < 3; ++i) {  // the engines go on
    auto const no_argument = rig::text_of([&] { w[0].rpc_sync<squared>("worker1", y); });
    CHECK(has(no_argument,
              {one, "worker 'worker1'", "device_maps[\"worker1\"] of worker 'worker0'"}));
    CHECK(rig::error_of([&] { w[0].remote<squared>("worker1", y); }) == errc::unsupported_tensor);
    auto const no_peer = rig::text_of([&] { w[0].rpc_sync<squared>("worker2", x); });
    CHECK(has(no_peer, {zero, "device_maps[\"worker2\"] of worker 'worker0'"}));
    auto const no_result =
        rig::text_of([&] { w[0].rpc_sync<moved>("worker1", x, std::string(zero)); });
    CHECK(
        has(no_result, {zero, "worker 'worker0'", "device_maps[\"worker1\"] of worker 'worker0'"}));
    CHECK(rig::error_of([&] { w[0].rpc_sync<moved>("worker1", x, std::string(zero)); }) ==
          errc::unsupported_tensor);
    auto const held = w[0].remote<moved>("worker1", x, std::string(zero));
    CHECK(rig::error_of([&] { held.to_here(); }) == errc::unsupported_tensor);
    // worker1 has no map for worker0, though worker0 has one for it.
    auto const other_way =
        w[0].rpc_sync<error_of_call>("worker1", std::string("worker0"), std::string(one));
    CHECK(has(other_way, {one, "device_maps[\"worker0\"] of worker 'worker1'"}));
    CHECK(same(w[0].rpc_sync<squared>("worker1", x), values(1).mul(values(1))));
    CHECK(same(w[0].rpc_sync<on_host>("worker1", x), values(1)));
  }
  // The map of one side is enough for gradients.
  auto const leaf = leaf_on(first, 1);
  auto ctx = w[0].context();
  ctx.backward({w[0].rpc_sync<squared>("worker1", leaf).sum()});
  CHECK(ctx.gradient(leaf).device() == first);
  CHECK(same(ctx.gradient(leaf), values(1).mul(2)));
}

// --- the tests -----------------------------------------------------------------------------------

DeviceMaps all(DeviceMap const& map) {
  return {{"worker0", map}, {"worker1", map}, {"worker2", map}};
}

TEST_CASE_TEMPLATE("[RPC-50] arguments go by the caller's map, results come back by its reverse",
                   Engine, DISTGRAD_DEVICE_ENGINES) {
  auto const before = SimulatedQueues::pinned.load();
  on_devices<Engine>(all(crossing), places);
  CHECK(SimulatedQueues::pinned.load() > before);
}
TEST_CASE_TEMPLATE("[RPC-52] calls with tensors that are still computed", Engine,
                   DISTGRAD_DEVICE_ENGINES) {
  on_devices<Engine>(all(parallel), asynchronous_calls);
}
TEST_CASE_TEMPLATE("tensors of the host may go to a device, and their gradients come back", Engine,
                   DISTGRAD_DEVICE_ENGINES) {
  on_devices<Engine>({{"worker1", {{"cpu", one}}}}, host_to_device);
}
TEST_CASE_TEMPLATE("[DA-69] gradients come back to the devices their tensors were on", Engine,
                   DISTGRAD_DEVICE_ENGINES) {
  on_devices<Engine>(all(crossing), gradients_return);
}
TEST_CASE_TEMPLATE("gradients of gradients go the same ways", Engine, DISTGRAD_DEVICE_ENGINES) {
  on_devices<Engine>(all(crossing), second_order);
}
TEST_CASE_TEMPLATE("[RPC-53] remote values on devices", Engine, DISTGRAD_DEVICE_ENGINES) {
  on_devices<Engine>(all(crossing), references);
}
TEST_CASE_TEMPLATE("[DA-71] an optimizer steps parameters on the device where they live", Engine,
                   DISTGRAD_DEVICE_ENGINES) {
  on_devices<Engine>(all(crossing), trains);
}
TEST_CASE_TEMPLATE("[RPC-51] a tensor whose device has no entry is refused, and all go on", Engine,
                   DISTGRAD_DEVICE_ENGINES) {
  on_devices<Engine>({{"worker1", {{zero, one}}}}, unmapped, 1);
}

TEST_CASE_TEMPLATE("[RPC-49] a wrong device map ends the group before it begins", Engine,
                   DISTGRAD_DEVICE_ENGINES) {
  auto const refusal = [](DeviceMaps maps) {
    auto options = rig::options<Engine>();
    options.device_maps = std::move(maps);
    return rig::text_of([&] { rig::Cluster<2, Engine> cluster(std::move(options)); });
  };
  CHECK(has(refusal({{"worker1", {{zero, "privateuseone:2"}}}}),
            {"worker 'worker0'", "worker 'worker1' has no device privateuseone:2"}));
  CHECK(has(refusal({{"worker1", {{zero, one}, {one, one}}}}), {"maps to the same device"}));
  CHECK(has(refusal({{"worker1", {{"cuda:0", one}}}}), {"worker 'worker0' has no cuda device"}));
  CHECK(has(refusal({{"ps0", {{zero, one}}}}), {"device_maps[\"ps0\"]", "not in the group"}));
}

/// Passes on what the contract asked for when it did not speak of devices.
struct Forgetful {
  using contract = rendezvous_v1;
  std::vector<PeerAddress> exchange(PeerAddress self, std::uint32_t, Deadline) {
    return {{self.info, self.endpoint}};
  }
};

TEST_CASE("a rendezvous that loses what workers say of their devices is named") {
  SimulatedDevices const devices;
  auto options = rig::options<SimulatedLoopback>();
  options.name = "alone";
  options.rendezvous = Forgetful();
  { SimulatedLoopback const without_maps(options); }
  options.device_maps = {{"alone", parallel}};
  CHECK(has(rig::text_of([&] { SimulatedLoopback const engine(options); }),
            {"worker 'alone'", "PeerAddress::devices"}));
}

TEST_CASE("a worker keeps its own tensors where they are, unless it has a map for itself") {
  for (auto const& maps : {DeviceMaps(), DeviceMaps{{"alone", crossing}}}) {
    SimulatedDevices const devices;
    auto options = rig::options<SimulatedLoopback>();
    options.name = "alone";
    options.device_maps = maps;
    CAPTURE(maps.size());
    SimulatedLoopback engine(options);
    auto const x = leaf_on(second, 1);
    CHECK(engine.rpc_sync<devices_of>("alone", std::vector{x}) ==
          std::vector<std::string>{maps.empty() ? one : zero});
    auto ctx = engine.context();
    auto const back = engine.rpc_sync<squared>("alone", x);
    CHECK(back.device() == second);
    ctx.backward({back.sum()});
    CHECK(ctx.gradient(x).device() == second);
    CHECK(same(ctx.gradient(x), values(1).mul(2)));
    CHECK(devices.error() == "");
  }
}

}  // namespace device_maps
}  // namespace

}  // namespace device_maps_tests
