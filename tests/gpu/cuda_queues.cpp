// CudaQueues on a real device. Where none is visible the program says why and exits with 77, which
// ctest shows as skipped.

#include <cstdio>
#include <string>

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <distgrad/queue/cuda_queues.hpp>
//
#include <distgrad/engine/executor.hpp>
#include <distgrad/queue/queue_streams.hpp>
#include <distgrad/queue/stream_scope.hpp>

#include <ATen/ops/arange.h>
#include <torch/csrc/autograd/autograd.h>

#define DOCTEST_CONFIG_IMPLEMENT  // after libtorch, which has a CHECK of its own
#include <doctest/doctest.h>

#include <distgrad/testing/queue_conformance.hpp>

namespace {

using distgrad::CudaQueues;
using distgrad::StreamScope;

c10::Device const device(c10::DeviceType::CUDA, 0);

// --- the contract --------------------------------------------------------------------------------

struct CudaRig {
  using Queues = CudaQueues;
  static std::unique_ptr<Queues> make() { return make_with(4); }
  static std::unique_ptr<Queues> make_serial() { return make_with(1); }
  static c10::Device device() { return ::device; }
  static void give(c10::Stream stream, distgrad::unique_function<void()> work) {
    auto const run = [](void* kernel) {
      std::unique_ptr<distgrad::unique_function<void()>> const owned(
          static_cast<distgrad::unique_function<void()>*>(kernel));
      (*owned)();
    };
    auto* const kernel = new distgrad::unique_function<void()>(std::move(work));
    REQUIRE(cudaLaunchHostFunc(c10::cuda::CUDAStream(stream), run, kernel) == cudaSuccess);
  }
  static void finish() { REQUIRE(cudaDeviceSynchronize() == cudaSuccess); }

 private:
  static std::unique_ptr<Queues> make_with(std::size_t threads) {
    Queues::Options options;
    options.threads = threads;
    return std::make_unique<Queues>(options);
  }
};

using namespace distgrad::testing;
TEST_CASE_TEMPLATE_INVOKE(queue_conformance, CudaRig);

TEST_CASE("CUDA queues serve the devices they are given, and no others") {
  CudaQueues::Options options;
  CHECK(CudaQueues(options).streams().size() == std::size_t(c10::cuda::device_count()));
  options.devices = {0};
  CudaQueues queues(options);
  CHECK(queues.streams().size() == 1);
  CHECK(queues.streams()[0] != c10::cuda::getDefaultCUDAStream(0).unwrap());
  CHECK_THROWS_AS(queues.submit(c10::DeviceType::XPU, {0, [] {}}), distgrad::Error);
  options.devices = {c10::DeviceIndex(c10::cuda::device_count())};
  CHECK_THROWS_AS(CudaQueues{options}, distgrad::Error);
}

// --- a pass --------------------------------------------------------------------------------------

at::Tensor slowly(at::Tensor x) {
  for (int i = 0; i < 200; ++i) x = x.mul(2).div(2);
  return x;
}
at::Tensor loss_of(at::Tensor const& x, at::Tensor const& w) {
  return slowly(x.mul(w)).mul(slowly(x.mul(x))).sum();
}

TEST_CASE("a pass over several streams of a GPU is exact") {
  CudaQueues queues{CudaQueues::Options()};
  distgrad::QueueStreams<CudaQueues> streams(queues);
  auto const values = at::arange(1 << 16, at::kDouble).remainder(7).add(1);
  auto const x0 = values.clone().set_requires_grad(true);
  auto const w0 = values.mul(0.5).set_requires_grad(true);
  auto const expected = torch::autograd::grad({loss_of(x0, w0)}, {x0, w0});
  for (int round = 0; round < 10; ++round) {
    at::Tensor x, w, loss;
    auto const side = c10::cuda::getStreamFromPool().unwrap();
    {
      StreamScope const on(side);
      x = values.to(device).set_requires_grad(true);
      w = values.mul(0.5).to(device).set_requires_grad(true);
      loss = loss_of(x, w);
    }
    auto event = queues.record(side);
    queues.wait(distgrad::current_stream(device), event);
    distgrad::Executor executor({}, {}, &streams);
    executor.add_root(loss.mul(1));
    executor.run_ready();
    auto const gradients = executor.take_gradients();
    CHECK(gradients.find(x).cpu().equal(expected[0]));
    CHECK(gradients.find(w).cpu().equal(expected[1]));
  }
}

/// The CUDA kernels of libtorch, which this program does not link: where there is no GPU, libraries
/// that they need may be missing, too. @return what is wrong with them; empty if nothing is.
std::string load_kernels() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL)) return {};
  auto const* const error = dlerror();
  return error ? error : "libtorch_cuda.so cannot be loaded";
}

}  // namespace

int main(int argc, char** argv) {
  int const count = c10::cuda::device_count();
  std::printf("CUDA devices visible: %d\n", count);
  if (count == 0) {
    int found = 0;
    std::printf("skipped: %s\n", cudaGetErrorString(cudaGetDeviceCount(&found)));
    return 77;
  }
  if (auto const error = load_kernels(); !error.empty()) {
    std::printf("libtorch's CUDA kernels: %s\n", error.c_str());
    return 1;
  }
  return doctest::Context(argc, argv).run();
}
