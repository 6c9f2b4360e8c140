// Engines without a thread at the two ends of a line of bytes, quiet, noisy and cut.
#include "driver.hpp"
#include "rig.hpp"

#include <optional>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>

#include <distgrad/rendezvous/static_rendezvous.hpp>
#include <distgrad/transport/serial_transport.hpp>

#include "../transport/noisy_terminals.hpp"

namespace serial_engines_tests {

namespace {
namespace serial_engines {

using namespace std::chrono_literals;
using Engine = distgrad::DistEngine<distgrad::SerialTransport, distgrad::InlineQueues>;

constexpr noise::Rates noisy{
    .flipped_bit = 0.0005, .lost = 0.0005, .garbage = 0.0005, .burst = 0.0001};

/// A leaf of worker1.
at::Tensor& weight() {
  static auto const w = at::arange(200, at::kDouble).mul(0.01).set_requires_grad(true);
  return const_cast<at::Tensor&>(w);
}
at::Tensor layer(at::Tensor const& x) { return x.mul(weight()).tanh(); }
at::Tensor remote_weight_gradient(distgrad::ContextId context) {
  return distgrad::this_worker().context_part(context)->gradient(weight());
}
at::Tensor fail(at::Tensor const&) { throw std::runtime_error("the sensor is wet"); }

struct Pair {
  std::optional<noise::Terminals> line;
  std::unique_ptr<Engine> here, there;
  std::optional<rig::Driver<Engine>> driver;

  Pair(unsigned seed, noise::Rates rates)
      : line(std::in_place, seed, rates), here(make(0)), there(make(1)), driver(*there) {}

  std::unique_ptr<Engine> make(int rank) {
    auto options = rig::options<Engine>();
    options.rank = rank;
    options.world_size = 2;
    options.rendezvous = distgrad::StaticRendezvous(
        {{{"worker0", {0}, {}}, "serial"}, {{"worker1", {1}, {}}, "serial"}});
    options.transport.lines.push_back(
        {.peer = {std::uint32_t(1 - rank)}, .descriptor = line->take_end(rank)});
    options.transport.piece_bytes = 64;
    return std::make_unique<Engine>(std::move(options));
  }
  distgrad::SerialStatistics seen_here() const { return here->transport().statistics({1}); }
};

/// Two layers on worker1, the rest here; the same in one graph is the truth.
void check_pass(Engine& here) {
  auto const x = at::arange(200, at::kDouble).mul(0.003).set_requires_grad(true);
  auto const rest = [](at::Tensor const& y) { return y.pow(2).sum(); };
  auto const uncut = torch::autograd::grad({rest(layer(layer(x).add(x)))}, {x, weight()});
  auto context = here.context();
  auto const hidden = here.rpc_sync<layer>("worker1", x);
  context.backward({rest(here.rpc_sync<layer>("worker1", hidden.add(x)))});
  CHECK(context.gradient(x).allclose(uncut[0], 1e-12, 1e-12));
  auto const at_weight = here.rpc_sync<remote_weight_gradient>("worker1", context.id());
  CHECK(at_weight.allclose(uncut[1], 1e-12, 1e-12));
}

void check_shutdown(Pair& pair) {
  std::thread other([&] { pair.there->shutdown(60s); });
  CHECK_NOTHROW(pair.here->shutdown(60s));
  other.join();
  auto const info = pair.here->debug_info();
  CHECK(info.pending_calls + info.autograd_contexts + info.backward_passes == 0);
}

}  // namespace serial_engines
}  // namespace

using namespace serial_engines;

TEST_CASE("engines on a serial line differentiate as in one process, and end together") {
  std::uint64_t damaged = 0, resent = 0;
  for (unsigned seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    Pair pair(seed, seed == 0 ? noise::Rates{} : noisy);
    check_pass(*pair.here);
    auto const text = rig::text_of([&] { pair.here->rpc_sync<fail>("worker1", weight()); });
    CHECK(text.find("the sensor is wet") != std::string::npos);
    damaged += pair.seen_here().packets_damaged;
    resent += pair.seen_here().packets_resent;
    if (seed == 0) CHECK(damaged == 0);
    check_shutdown(pair);
  }
  CHECK(damaged > 0);
  CHECK(resent > 0);
}

TEST_CASE("a serial line that is cut fails what waits, and what comes later, naming the peer") {
  Pair pair(0, {});
  check_pass(*pair.here);
  auto context = pair.here->context();
  auto const x = at::ones({3}).set_requires_grad(true);
  auto const y = pair.here->rpc_sync<layer>("worker1", at::ones({200}).mul(x.sum()));
  pair.driver.reset();  // nobody answers any more
  auto const waiting = pair.here->rpc_async<layer>("worker1", y);
  pair.line.reset();
  auto const names_peer = [](auto&& call) {
    auto const text = rig::text_of(call);
    CAPTURE(text);
    CHECK(rig::error_of(call) == distgrad::condition::peer_lost);
    CHECK(text.find("worker1") != std::string::npos);
  };
  names_peer([&] { waiting.get(); });
  names_peer([&] { pair.here->rpc_sync<layer>("worker1", y); });
  names_peer([&] { context.backward({y.sum()}); });
}

}  // namespace serial_engines_tests
