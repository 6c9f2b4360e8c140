// What does a distributed backward cost?
//
//   backward [--quick]
//
// First against libtorch's own, which knows FAST mode only, in our default mode and in FAST: open a
// context, forward through the other worker, backward, release. Rows: one multiplication at the
// other worker; 50 of them, called one after the other; 50 nested ones, each called from inside the
// one before and at the other worker than it. The bare echo beside them is the floor of FAST's
// messages: one round trip forward and one backward per hop, 8 bytes each way.
//
// Then the backward alone, per hop and in every mode, with its messages: see hop_rows.hpp.
//
// One JSON line per row on stdout; a line for people, and at the end the targets, on stderr.
#include <distgrad/distgrad.hpp>

#include "echo_peer.hpp"
#include "hop_rows.hpp"
#include "program.hpp"
#include "torch_peer.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>

namespace backward {

using Engine = distgrad::DistEngine<distgrad::TcpTransport, distgrad::CpuQueues>;

at::Tensor mul(at::Tensor x, at::Tensor y) { return x.mul(y); }

at::Tensor nested(at::Tensor x, std::int64_t hops) {
  auto y = x.mul(1.001);
  if (hops <= 1) return y;
  auto& here = distgrad::this_worker();
  return here.rpc_sync<nested>(1 - here.rank(), y, hops - 1);
}

/// distgrad with the names of `bench::TorchPeer`.
class Distgrad {
 public:
  Distgrad(bench::Role const& role, distgrad::BackwardMode mode)
      : mode_(mode),
        engine_({.name = "w" + std::to_string(role.rank),
                 .rank = role.rank,
                 .world_size = 2,
                 .master_addr = "127.0.0.1",
                 .master_port = role.port}) {}
  ~Distgrad() { engine_.shutdown(); }
  Distgrad(Distgrad const&) = delete;
  Distgrad& operator=(Distgrad const&) = delete;

  class Context {
   public:
    explicit Context(Distgrad& self) : context_(self.engine_.context()), mode_(self.mode_) {}
    void backward(std::vector<at::Tensor> const& roots) {
      context_.backward(roots, {.mode = mode_});
    }
    at::Tensor gradient(at::Tensor const& leaf) const { return context_.gradient(leaf); }

   private:
    distgrad::Context context_;
    distgrad::BackwardMode mode_;
  };

  Context context() { return Context(*this); }
  at::Tensor mul(at::Tensor const& x, at::Tensor const& y) {
    return engine_.rpc_sync<backward::mul>("w1", x, y);
  }
  at::Tensor nested(at::Tensor const& x, std::int64_t hops) {
    return engine_.rpc_sync<backward::nested>("w1", x, hops);
  }

 private:
  distgrad::BackwardMode mode_;
  Engine engine_;
};

}  // namespace backward

namespace {

constexpr std::int64_t many_hops = 50;

/// Forward, backward and release, once with the gradient looked at.
template <class Peer, class Forward>
bench::Call row(Peer& peer, Forward forward, at::Tensor leaf, double gradient) {
  auto context = peer.context();
  context.backward({forward().sum()});
  double const got = context.gradient(leaf).template item<double>();
  bench::require(std::abs(got - gradient) < 1e-4 * gradient, "gradient");
  return [&peer, forward] {
    auto context = peer.context();
    context.backward({forward().sum()});
  };
}

/// The rows' calls for a driver's `Distgrad` or `TorchPeer`.
template <class Peer>
std::vector<bench::Call> backward_calls(Peer& peer) {
  auto const x = at::ones({1}).set_requires_grad(true);
  auto const y = at::ones({1}).set_requires_grad(true);
  auto const one = [=, &peer] { return peer.mul(x, y); };
  auto const chain = [=, &peer] {
    auto product = x;
    for (std::int64_t i = 0; i < many_hops; ++i) product = peer.mul(product, y);
    return product;
  };
  auto const nested = [=, &peer] { return peer.nested(x, many_hops); };
  return {row(peer, one, x, 1.0), row(peer, chain, y, static_cast<double>(many_hops)),
          row(peer, nested, x, std::pow(1.001, many_hops))};
}

template <class Peer>
void drive_or_wait(Peer&& peer, bench::Role const& role) {
  if (role.rank == 0) bench::serve_chunks(backward_calls(peer));
}

void run_role(bench::Role const& role) {
  at::set_num_threads(1);
  using distgrad::BackwardMode;
  if (role.contestant == "distgrad")
    return drive_or_wait(backward::Distgrad(role, BackwardMode::smart), role);
  if (role.contestant == "distgrad_fast")
    return drive_or_wait(backward::Distgrad(role, BackwardMode::fast), role);
  if (role.contestant == "torch") {
    // TensorPipe's pool must be larger than half the nested calls, or it hangs.
    return drive_or_wait(bench::TorchPeer(role.rank, role.port, 64), role);
  }
  int const many_round_trips = 2 * static_cast<int>(many_hops);
  bench::run_echo_role(role, {{8, 2}, {8, many_round_trips}, {8, many_round_trips}});
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program;
  program.name = "backward";
  program.run_role = run_role;
  program.own_rows = bench::run_hop_rows;
  program.rows = {{"1 hop", "\"hops\":1,\"shape\":\"single\"", 0.3},
                  {"50 hops called one after the other", "\"hops\":50,\"shape\":\"chain\"", 0.3},
                  {"50 nested hops", "\"hops\":50,\"shape\":\"nested\"", 0.3}};
  bench::add_contestants(program, {"distgrad", "distgrad_fast"}, bench::TorchPeer::why_absent());
  return bench::run_program(program, argc, argv);
}
