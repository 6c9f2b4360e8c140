#include <distgrad/testing/simulated_device.hpp>
//
#include <doctest/doctest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/autograd.h>

namespace simulated_device_tests {

namespace {

using distgrad::testing::simulated;
using distgrad::testing::SimulatedDevices;

constexpr std::uint64_t seeds = 30;
c10::Device const first(simulated, 0), second(simulated, 1);
c10::impl::VirtualGuardImpl guard() { return c10::impl::VirtualGuardImpl(simulated); }
c10::Stream side_stream(c10::Device device = first) {
  return guard().getStreamFromGlobalPool(device);
}

// How many seeds show that `program` is wrong. It returns what shall be a tensor of 2s.
template <class Program>
std::uint64_t wrong_runs(Program program) {
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    SimulatedDevices const devices(seed);
    at::Tensor const result = program().cpu();
    if (!result.equal(at::full(result.sizes(), 2))) ++wrong;
    CHECK(devices.error() == "");
  }
  return wrong;
}

at::Tensor ones(std::vector<std::int64_t> sizes = {3, 3}) { return at::ones(sizes).to(first); }

TEST_CASE("kernels run after their call has returned, and before the host sees their result") {
  SimulatedDevices const devices(0);
  auto x = ones();
  auto const* const element = static_cast<float const*>(x.storage().data_ptr().get());
  x.add_(1);
  CHECK(element[0] != element[0]);  // nan: nothing ran
  CHECK(x.cpu().equal(at::full({3, 3}, 2)));
  CHECK(element[0] == 2);
}

TEST_CASE("on one stream work runs in order") {
  CHECK(wrong_runs([] {
          auto x = ones();
          for (int i = 0; i < 10; ++i) x = x.mul(2).div(2).add(1).sub(1);
          return x.add(x);
        }) == 0);
}

TEST_CASE("another stream must wait by an event, or reads too early") {
  auto const program = [](bool waits) {
    return wrong_runs([waits] {
      auto const x = ones().mul(4).div(4);
      c10::Event event(simulated);
      event.record(guard().getStream(first));
      auto const side = side_stream();
      if (waits) event.block(side);
      c10::StreamGuard const on(side);
      return x.add(1).cpu();
    });
  };
  CHECK(program(true) == 0);
  CHECK(program(false) > seeds / 3);
}

TEST_CASE("memory must be recorded on a stream that uses it after its owner let go") {
  auto const program = [](bool records) {
    return wrong_runs([records] {
      auto x = ones();
      auto const side = side_stream();
      c10::Event event(simulated);
      event.record(guard().getStream(first));
      event.block(side);
      at::Tensor y;
      {
        c10::StreamGuard const on(side);
        y = x.add(1);
      }
      if (records) x.record_stream(side);
      x.reset();
      ones().add(1);  // may take the memory
      c10::StreamGuard const on(side);
      return y.cpu();
    });
  };
  CHECK(program(true) == 0);
  CHECK(program(false) > seeds / 6);
}

TEST_CASE("a copy between devices joins the current streams of both") {
  CHECK(wrong_runs([] {
          auto const x = ones().add(1);
          auto const there = x.to(second);
          return there.mul(2).div(2).to(first).add(0);
        }) == 0);
}

TEST_CASE("pinned memory is used late and pageable memory at once") {
  auto const pinned = [] {
    auto& allocator = SimulatedDevices::pinned_allocator();
    auto memory = std::make_shared<c10::DataPtr>(allocator.allocate(3 * sizeof(float)));
    c10::Storage storage(c10::Storage::use_byte_size_t(), 3 * sizeof(float),
                         allocator.allocate(3 * sizeof(float)));
    auto host = at::empty({0});
    host.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
    host.unsafeGetTensorImpl()->set_sizes_contiguous({3});
    return host;
  };
  SimulatedDevices const devices(0);
  for (bool const is_pinned : {true, false}) {
    auto host = is_pinned ? pinned() : at::empty({3});
    host.fill_(1);
    auto const x = at::empty({3}, at::device(first)).copy_(host, true);
    host.fill_(5);
    CHECK(x.cpu().equal(at::full({3}, is_pinned ? 5 : 1)));
    auto back = is_pinned ? pinned() : at::empty({3});
    back.fill_(0);
    back.copy_(x, true);
    CHECK(back.equal(at::full({3}, is_pinned ? 0 : 1)));
  }
  auto host = pinned();
  host.fill_(2);
  auto const x = at::empty({3}, at::device(first)).copy_(host, true);
  host.reset();  // kept until the copy is done
  CHECK(x.cpu().equal(at::full({3}, 2)));
}

TEST_CASE("views share memory, results in place are the input itself") {
  SimulatedDevices const devices(1);
  auto x = at::arange(12, at::kFloat).reshape({3, 4}).to(first);
  auto const column = x.t().select(0, 1).slice(0, 1, 3);
  column.mul_(10);
  CHECK(x.cpu().sum().item<float>() == 66 + 9 * (5 + 9));
  CHECK(&x.add_(1) == &x);
  auto const parts = x.split(2, 1);
  parts[0].zero_();
  CHECK(x.cpu().select(1, 0).equal(at::zeros({3})));
  CHECK(x.as_strided({2}, {5}, 1).cpu().sizes() == at::IntArrayRef{2});
  CHECK(x.view({4, 3}).reshape({2, 6}).expand({2, 2, 6}).permute({2, 0, 1}).is_contiguous() ==
        false);
}

TEST_CASE("operators whose result the host needs wait for it") {
  SimulatedDevices const devices(0);
  auto const x = at::arange(5, at::kFloat).to(first).add(1);
  CHECK(x.sum().item<float>() == 15);
  CHECK(x.equal(x.clone()));
  CHECK(x.nonzero().size(0) == 5);
  CHECK(x.masked_select(x.gt(3)).cpu().equal(at::arange(4, 6, at::kFloat)));
}

TEST_CASE("tensors of one operator must be on one device") {
  SimulatedDevices const devices(0);
  CHECK_THROWS_AS(ones().add(at::ones({3, 3}).to(second)), c10::Error);
}

TEST_CASE("a kernel that fails says so later") {
  SimulatedDevices const devices(0);
  auto const x = ones();
  auto const y = x.index_select(0, at::full({1}, 7, at::kLong).to(first));
  CHECK(y.cpu().isnan().all().item<bool>());
  CHECK(devices.error() != "");
}

// The same on the CPU and on the device, gradients included.
template <class Loss>
void check_autograd(Loss loss) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    SimulatedDevices const devices(seed);
    std::vector<at::Tensor> results[2];
    for (bool const on_device : {false, true}) {
      auto make = [&](double from) {
        auto values = at::arange(12, at::kFloat).add(from).sin().reshape({3, 4});
        return (on_device ? values.to(first) : values).set_requires_grad(true);
      };
      std::vector<at::Tensor> const leaves{make(0.1), make(0.7)};
      at::Tensor const value = loss(leaves[0], leaves[1]);
      auto found = torch::autograd::grad({value}, leaves, {}, true, true);
      found.push_back(value.detach());
      found.push_back(torch::autograd::grad({found[0].sum()}, leaves, {}, false, false, true)[1]);
      for (auto const& tensor : found) {
        results[on_device].push_back(tensor.defined() ? tensor.cpu().detach() : at::zeros({}));
      }
    }
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      CAPTURE(i);
      CHECK(results[0][i].equal(results[1][i]));
    }
    CHECK(devices.error() == "");
  }
}

TEST_CASE("autograd works on it as on the CPU, to the bit") {
  check_autograd([](at::Tensor const& a, at::Tensor const& b) { return a.mul(b).tanh().sum(); });
  check_autograd([](at::Tensor const& a, at::Tensor const& b) {
    return at::linear(a, b).relu().pow(2).mean().add(a.exp().sum());
  });
  check_autograd([](at::Tensor const& a, at::Tensor const& b) {
    auto const all = at::cat({a, b.mul(a)}, 1).reshape({4, 6}).softmax(1).slice(1, 1, 5);
    return all.mul(at::stack({a, b}).sum(0).sum(0).narrow(0, 0, 4)).sum();
  });
  check_autograd([](at::Tensor const& a, at::Tensor const& b) {
    auto x = a.mul(2);
    x.select(0, 1).mul_(b.select(0, 2));
    return x.unbind(1)[1].add(b.sum()).sum().mul(x.clone().mul_(3).sum());
  });
}

}  // namespace

}  // namespace simulated_device_tests
