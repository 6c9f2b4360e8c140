// Which stream the nodes of a pass run on, and what orders streams. On simulated devices an order
// that is missing shows as a wrong number, for some of the seeds: so each that the executor asks
// for is left out in turn.

#include <distgrad/engine/executor.hpp>
//
#include <map>

#include <doctest/doctest.h>

#include <distgrad/queue/stream_scope.hpp>
#include <distgrad/testing/simulated_device.hpp>

#include <ATen/ops/arange.h>
#include <torch/csrc/autograd/autograd.h>

namespace executor_streams_tests {

namespace {

using distgrad::StreamScope;
using distgrad::testing::simulated;
using distgrad::testing::SimulatedDevices;

c10::Device const first(simulated, 0), second(simulated, 1);
constexpr int none = -1;

/// Orders streams, apart from what a test leaves out, by number.
class Streams final : public distgrad::StreamOrder {
 public:
  int no_order = none, no_keep = none;
  int orders = 0, keeps = 0;

  std::span<c10::Stream const> streams() const override { return own_; }
  void order(c10::Stream before, c10::Stream after) override {
    CHECK(before != after);
    if (orders++ == no_order) return;
    auto event = distgrad::record_event(before);
    distgrad::block_stream(after, event);
  }
  void keep(c10::DataPtr const& memory, c10::Stream stream) override {
    if (keeps++ != no_keep) distgrad::keep_memory(memory, stream);
  }
  std::shared_ptr<distgrad::DeviceMark> mark() override { return nullptr; }

  static c10::Stream side(c10::Device device, int number) {
    return c10::Stream(c10::Stream::UNSAFE, device, number);
  }

 private:
  std::vector<c10::Stream> own_{side(first, 0), side(second, 0)};
};

/// Forward work on a stream, after what the others did; what it reads is kept for it.
class On {
 public:
  On(c10::Stream stream, std::vector<at::Tensor> const& reads) : scope_(stream) {
    for (c10::StreamId id = 0; id < 8; ++id) {
      for (auto const device : {first, second}) {
        auto event = distgrad::record_event(Streams::side(device, int(id)));
        distgrad::block_stream(stream, event);
      }
    }
    for (auto const& tensor : reads) {
      if (tensor.device() == stream.device()) {
        distgrad::keep_memory(tensor.storage().data_ptr(), stream);
      }
    }
  }

 private:
  StreamScope scope_;
};

at::Tensor slowly(at::Tensor x) {
  for (int i = 0; i < 4; ++i) x = x.mul(2).div(2);
  return x;
}
at::Tensor values(double seed) { return at::arange(6, at::kFloat).add(seed).sin(); }

/// A loss that streams of `device` share in, and its leaves.
struct Graph {
  at::Tensor loss;
  std::vector<at::Tensor> leaves;
};

Graph on_host() {
  auto const x = values(0.3).set_requires_grad(true), w = values(0.8).set_requires_grad(true);
  auto const a = slowly(x.tanh());
  return {slowly(a.mul(slowly(w))).sum().add(slowly(a.exp()).sum()), {x, w}};
}

/// The same on three streams of the first device and one of `third`; the loss is on the caller's.
Graph on_streams(c10::Device third) {
  auto const s1 = Streams::side(first, 1), s2 = Streams::side(first, 2),
             s3 = Streams::side(third, 3);
  at::Tensor x, w, a, b, c;
  {
    On const stream(s1, {});
    x = values(0.3).to(first).set_requires_grad(true);
    a = slowly(x.tanh());
  }
  {
    On const stream(s2, {a});
    w = values(0.8).to(first).set_requires_grad(true);
    b = slowly(a.mul(slowly(w)));
  }
  {
    On const stream(s3, {a});
    c = slowly(a.to(third).exp());
  }
  On const caller(Streams::side(first, 0), {b, c});
  if (third == first) return {b.sum().add(c.sum()), {x, w}};
  On const callers_other(Streams::side(third, 0), {c});
  StreamScope const here(Streams::side(first, 0));
  return {b.sum().add(c.to(first).sum()), {x, w}};
}

/// Whether the gradients are right, as the caller's stream sees them when the pass is over.
bool is_right(Streams& streams, c10::Device third, std::uint64_t seed) {
  SimulatedDevices const devices(seed);
  auto const expected = [] {
    auto const graph = on_host();
    return torch::autograd::grad({graph.loss}, graph.leaves);
  }();
  auto graph = on_streams(third);
  streams.orders = streams.keeps = 0;
  auto const waits = SimulatedDevices::host_waits();
  std::vector<at::Tensor> found;
  {
    distgrad::Executor executor({}, {}, &streams);
    executor.add_root(graph.loss);
    graph.loss.reset();
    executor.run_ready();
    CHECK(executor.is_complete());
    auto gradients = executor.take_gradients();
    // What the caller made of a gradient must survive it.
    for (auto const& leaf : graph.leaves) found.push_back(slowly(gradients.find(leaf)));
  }
  CHECK(SimulatedDevices::host_waits() == waits);
  bool right = true;
  for (std::size_t i = 0; i < found.size(); ++i) right = right && found[i].cpu().equal(expected[i]);
  CHECK(SimulatedDevices::error() == "");
  return right;
}

int wrong_runs(Streams& streams, c10::Device third, std::uint64_t seeds) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) wrong += !is_right(streams, third, seed);
  return wrong;
}

TEST_CASE("a pass over several streams and devices is exact for any order of kernels") {
  Streams streams;
  CHECK(wrong_runs(streams, first, 60) == 0);
  CHECK(wrong_runs(streams, second, 60) == 0);
}

TEST_CASE("each order of streams in a pass is needed") {
  for (auto const third : {first, second}) {
    Streams streams;
    REQUIRE(is_right(streams, third, 0));
    int const orders = streams.orders;
    CHECK(orders >= 6);
    for (streams.no_order = 0; streams.no_order < orders; ++streams.no_order) {
      CAPTURE(streams.no_order);
      CAPTURE(third);
      CHECK(wrong_runs(streams, third, 60) > 0);
    }
  }
}

TEST_CASE("all memory that a pass keeps for other streams needs it") {
  for (auto const third : {first, second}) {
    Streams streams;
    REQUIRE(is_right(streams, third, 0));
    int const keeps = streams.keeps;
    for (streams.no_keep = 0; streams.no_keep < keeps; ++streams.no_keep) {
      CAPTURE(streams.no_keep);
      CAPTURE(third);
      CHECK(wrong_runs(streams, third, 60) > 0);
    }
  }
}

TEST_CASE("without devices nothing is asked of streams") {
  Streams streams;
  auto const graph = on_host();
  auto const expected = torch::autograd::grad({graph.loss}, graph.leaves, {}, true);
  distgrad::Executor executor({}, {}, &streams);
  executor.add_root(graph.loss);
  executor.run_ready();
  CHECK(executor.take_gradients().find(graph.leaves[0]).equal(expected[0]));
  CHECK(streams.orders == 0);
  CHECK(streams.keeps == 0);
}

}  // namespace

}  // namespace executor_streams_tests
