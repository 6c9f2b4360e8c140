#include <distgrad/tensor/device_staging.hpp>
//
#include <doctest/doctest.h>

#include <distgrad/testing/simulated_device.hpp>

#include <ATen/ops/arange.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>

namespace device_staging_tests {

namespace {
namespace staging {

using distgrad::DeviceStaging;
using distgrad::testing::simulated;
using distgrad::testing::SimulatedDevices;

constexpr std::uint64_t seeds = 40;
c10::Device const first(simulated, 0), second(simulated, 1), host(c10::kCPU);

c10::Allocator* pinned(c10::DeviceType) { return &SimulatedDevices::pinned_allocator(); }
c10::Allocator* none(c10::DeviceType) { return nullptr; }

at::Tensor values(int from = 0) { return at::arange(from, from + 12, at::kFloat).reshape({3, 4}); }

// Work for a while, and no change.
at::Tensor slowly(at::Tensor x) {
  for (int i = 0; i < 8; ++i) x = x.mul(2).div(2);
  return x;
}

std::vector<at::Tensor> list(std::initializer_list<at::Tensor> tensors) { return tensors; }

/// Skips one of the calls by which a program orders a device's work.
struct SkippingGuard : distgrad::testing::detail::SimulatedGuard {
  using Base = distgrad::testing::detail::SimulatedGuard;

  explicit SkippingGuard(int skipped) : skipped_(skipped) { registered().store(this); }
  ~SkippingGuard() { registered().store(before_); }

  int calls() const { return calls_; }

  void block(void* event, c10::Stream const& stream) const {
    if (!skips()) Base::block(event, stream);
  }
  void synchronizeEvent(void* event) const {
    if (!skips()) Base::synchronizeEvent(event);
  }
  void synchronizeStream(c10::Stream const& stream) const {
    if (!skips()) Base::synchronizeStream(stream);
  }
  void recordDataPtrOnStream(c10::DataPtr const& data, c10::Stream const& stream) const {
    if (!skips()) Base::recordDataPtrOnStream(data, stream);
  }
  bool queryEvent(void*) const { return false; }  // so that the host waits in every run

 private:
  static std::atomic<c10::impl::DeviceGuardImplInterface const*>& registered() {
    return c10::impl::device_guard_impl_registry[static_cast<std::size_t>(simulated)];
  }
  bool skips() const { return calls_++ == skipped_; }

  c10::impl::DeviceGuardImplInterface const* before_ = registered().load();
  int skipped_;
  mutable int calls_ = 0;
};

/// To the host and on to the other device, with work on side streams before and after, and nobody
/// who keeps a tensor longer than needed.
at::Tensor round_trip(DeviceStaging& staging) {
  c10::impl::VirtualGuardImpl const guard(simulated);
  auto sent = [&] {
    c10::StreamGuard const on(guard.getStreamFromGlobalPool(first));
    return staging.to_host(list({slowly(values().to(first)).add(1)}));
  }();
  sent[0].add_(1);  // on the host, now
  c10::StreamGuard const on(guard.getStreamFromGlobalPool(second));
  staging.to_devices(sent, std::vector{second});
  auto const result = slowly(sent[0].add(1));
  sent.clear();
  return result.cpu();
}

std::uint64_t wrong_round_trips(int skipped, int* calls = nullptr) {
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SimulatedDevices const devices(seed);
    SkippingGuard const guard(skipped);
    DeviceStaging staging(&pinned);
    if (!round_trip(staging).equal(values(3))) ++wrong;
    if (calls) *calls = guard.calls();
    SimulatedDevices::synchronize();
    CHECK(devices.error() == "");
  }
  return wrong;
}

TEST_CASE("what is on a device arrives on the host and on other devices, on whatever streams") {
  CHECK(wrong_round_trips(-1) == 0);
}

TEST_CASE("each wait and each record of a staged copy is needed") {
  int calls = 0;
  wrong_round_trips(-1, &calls);
  REQUIRE(calls == 4);  // producer to copy, copy to host; memory for the user, copy to user
  for (int skipped = 0; skipped < calls; ++skipped) {
    CAPTURE(skipped);
    CHECK(wrong_round_trips(skipped) > 0);
  }
}

TEST_CASE("tensors of the host, and undefined ones, stay themselves") {
  SimulatedDevices const devices;
  DeviceStaging staging(&pinned);
  auto const here = values();
  auto const staged = staging.to_host(list({here, at::Tensor(), values().to(first)}));
  CHECK(staged[0].is_same(here));
  CHECK_FALSE(staged[1].defined());
  CHECK(staged[2].equal(values()));
  auto placed = list({here, at::Tensor(), here});
  staging.to_devices(placed, std::vector{host, second, second});
  CHECK(placed[0].is_same(here));
  CHECK_FALSE(placed[1].defined());
  CHECK(placed[2].device() == second);
  CHECK(placed[2].cpu().equal(here));
}

TEST_CASE("a staged tensor is described as the one it was made of") {
  for (auto* allocator : {&pinned, &none}) {
    SimulatedDevices const devices;
    DeviceStaging staging(allocator);
    auto const transposed = values().t().to(first);
    auto const gaps = values().to(first).slice(1, 0, 4, 2);
    auto const leaf = values().to(first).set_requires_grad(true);
    auto const empty = at::zeros({0, 3}).to(first);
    auto const whole = at::ones({2}, at::kLong).to(first);
    auto const staged = staging.to_host(list({transposed, gaps, leaf, empty, whole, leaf.mul(2)}));
    CHECK(staged[0].strides() == transposed.strides());
    CHECK(staged[0].equal(values().t()));
    CHECK(staged[1].is_contiguous());
    CHECK(staged[1].equal(values().slice(1, 0, 4, 2)));
    CHECK(staged[2].requires_grad());
    CHECK(staged[2].is_leaf());
    CHECK(staged[3].sizes() == empty.sizes());
    CHECK((staged[4].scalar_type() == at::kLong));
    CHECK(staged[5].requires_grad());
    CHECK(staged[5].is_leaf());
    for (auto const& tensor : staged) CHECK(tensor.device() == host);
  }
}

TEST_CASE("from device to device, and where a tensor is already") {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SimulatedDevices const devices(seed);
    DeviceStaging staging(&pinned);
    auto const there = values().to(second);
    auto placed = list({slowly(values().to(first)), there});
    staging.to_devices(placed, std::vector{second, second});
    CHECK(placed[0].device() == second);
    CHECK(placed[0].add(1).cpu().equal(values(1)));
    CHECK(placed[1].is_same(there));
    auto expanded = list({values().to(first)[0].expand({3, 4})});
    staging.to_devices(expanded, std::vector{second});
    CHECK(expanded[0].is_contiguous());
    CHECK(expanded[0].cpu().equal(values()[0].expand({3, 4})));
    CHECK(devices.error() == "");
  }
}

TEST_CASE("placing does not make the host wait") {
  SimulatedDevices const devices;
  DeviceStaging staging(&pinned);
  auto busy = slowly(values().to(first));
  auto const memory = staging.landing(std::vector<std::uint64_t>{48}, simulated);
  REQUIRE(memory.size() == 1);
  REQUIRE(memory[0].size_bytes() == 48);
  auto const before = devices.host_waits();
  auto placed = list({values()});
  staging.to_devices(placed, std::vector{first});
  CHECK(devices.host_waits() == before);
  CHECK(busy.add(placed[0]).cpu().equal(values().mul(2)));
}

TEST_CASE("sending waits for what the tensor needs, not for the rest of its device") {
  std::uint64_t unfinished = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SimulatedDevices const devices(seed);
    DeviceStaging staging(&pinned);
    auto const x = values().to(first);
    auto const other = c10::impl::VirtualGuardImpl(simulated).getStreamFromGlobalPool(first);
    c10::Event done(simulated);
    {
      c10::StreamGuard const on(other);
      slowly(slowly(values().to(first)));
      done.record(other);
    }
    CHECK(staging.to_host(list({x}))[0].equal(values()));
    if (!done.query()) ++unfinished;
  }
  CHECK(unfinished > 0);
}

}  // namespace staging
}  // namespace

}  // namespace device_staging_tests
