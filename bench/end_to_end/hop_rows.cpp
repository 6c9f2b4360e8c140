#include <distgrad/distgrad.hpp>

#include "../support/one_core.hpp"
#include "../support/rounds.hpp"
#include "counting_transport.hpp"
#include "hop_rows.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>

namespace hops {

constexpr double factor = 1.001;

at::Tensor hop(at::Tensor x) { return x.mul(factor); }

/// `hops` multiplications, each called from inside the one before and at the worker after it.
at::Tensor ring(at::Tensor x, std::int64_t hops) {
  auto y = x.mul(factor);
  if (hops <= 1) return y;
  auto& here = distgrad::this_worker();
  int const next = (here.rank() + 1) % static_cast<int>(here.group().size());
  return here.rpc_sync<ring>(next, y, hops - 1);
}

}  // namespace hops

namespace bench {
namespace {

struct Mode {
  char const* name;
  distgrad::BackwardMode mode;
};
// Each is compared with the last.
constexpr Mode modes[] = {{"smart", distgrad::BackwardMode::smart},
                          {"fast", distgrad::BackwardMode::fast}};
constexpr std::size_t mode_count = std::size(modes);
constexpr std::size_t local =
    mode_count;  // libtorch's own engine, which takes its turn like a mode

struct NamedKind {
  char const* name;
  distgrad::FrameKind kind;
};
constexpr NamedKind kinds[] = {{"gradient", distgrad::FrameKind::gradient},
                               {"done", distgrad::FrameKind::pass_done},
                               {"discover", distgrad::FrameKind::pass_discover},
                               {"discovered", distgrad::FrameKind::pass_discovered}};

bool belongs_to_passes(std::size_t kind) { return kind >= 0x40 && kind < 0x50; }

std::string name_of(std::size_t kind) {
  for (auto const& one : kinds)
    if (static_cast<std::size_t>(one.kind) == kind) return one.name;
  return "kind_" + std::to_string(kind);
}

/// A chain seen from the driver.
struct Chain {
  char const* shape;  // "chain": called by the driver, round robin; "ring": nested calls
  std::int64_t hops;
};
constexpr Chain chains[] = {
    {"chain", 1}, {"chain", 10}, {"chain", 50}, {"chain", 200}, {"ring", 50}};

at::Tensor forward(distgrad::Worker& driver, Chain const& chain, at::Tensor const& x) {
  int const others = static_cast<int>(driver.group().size()) - 1;
  if (chain.shape == std::string_view("ring")) return driver.rpc_sync<hops::ring>(1, x, chain.hops);
  auto y = x;
  for (std::int64_t i = 0; i < chain.hops; ++i)
    y = driver.rpc_sync<hops::hop>(1 + static_cast<int>(i % others), y);
  return y;
}

void require_gradient(at::Tensor const& got, Chain const& chain) {
  double const wanted = std::pow(hops::factor, static_cast<double>(chain.hops));
  require(got.defined() && std::abs(got.item<double>() - wanted) < 1e-4 * wanted, "gradient");
}

/// What a backward took, without its forward.
struct Cost {
  double wall_us = 0, cpu_us = 0;
};

template <class Backward>
Cost cost_of(Backward&& backward) {
  double const cpu = CpuUse::of(::getpid());
  auto const start = Clock::now();
  backward();
  double const wall = microseconds_since(start);
  return {wall, CpuUse::of(::getpid()) - cpu};
}

/// Where a cluster runs.
struct Setting {
  std::string transport;
  bool on_one_core = false;
};

class HopBench {
 public:
  HopBench(Setting setting, distgrad::Worker& driver, FrameCounts const& counts, bool quick,
           Targets& targets)
      : setting_(std::move(setting)),
        driver_(driver),
        counts_(counts),
        quick_(quick),
        targets_(targets) {}

  void run(Chain const& chain) {
    for (std::size_t who = 0; who <= local; ++who) chunk(chain, who);  // warms up
    Traffic traffic;
    for (std::size_t mode = 0; mode < mode_count; ++mode) traffic[mode] = traffic_of(chain, mode);
    print(chain, traffic, play_rounds(round_plan(quick_), {::getpid()}, [&](int i) {
            return play_round(chain, static_cast<std::size_t>(i));
          }));
  }

 private:
  using Round = std::array<Cost, mode_count + 1>;
  using Traffic = std::array<FrameCounts::Snapshot, mode_count>;

  /// A pass in a context of its own, or one of libtorch's over the same graph, uncut.
  Cost once(Chain const& chain, std::size_t who) {
    auto const x = at::ones({1}).set_requires_grad(true);
    if (who == local) return once_locally(chain, x);
    auto context = driver_.context();
    auto const loss = forward(driver_, chain, x).sum();
    auto const cost = cost_of([&] { context.backward({loss}, {.mode = modes[who].mode}); });
    require_gradient(context.gradient(x), chain);
    return cost;
  }

  static Cost once_locally(Chain const& chain, at::Tensor const& x) {
    auto y = x;
    for (std::int64_t i = 0; i < chain.hops; ++i) y = hops::hop(y);
    auto const loss = y.sum();
    auto const cost = cost_of([&] { torch::autograd::backward({loss}); });
    require_gradient(x.grad(), chain);
    return cost;
  }

  /// Medians over enough passes to fill some milliseconds.
  Cost chunk(Chain const& chain, std::size_t who) {
    std::vector<double> wall, cpu;
    auto const start = Clock::now();
    std::size_t const least = quick_ ? 2 : 3;
    while (wall.size() < least || microseconds_since(start) < (quick_ ? 5e3 : 40e3)) {
      auto const cost = once(chain, who);
      wall.push_back(cost.wall_us);
      cpu.push_back(cost.cpu_us);
    }
    return {median(std::move(wall)), median(std::move(cpu))};
  }

  Round play_round(Chain const& chain, std::size_t first) {
    Round round;
    for (std::size_t i = 0; i < round.size(); ++i) {
      std::size_t const who = (first + i) % round.size();  // nobody always goes first
      round[who] = chunk(chain, who);
    }
    return round;
  }

  /// What all workers send for one pass: the median of several, kind by kind. A count ends behind a
  /// forward of the next context, so that it has what a pass sends after its initiator is done.
  FrameCounts::Snapshot traffic_of(Chain const& chain, std::size_t mode) {
    std::array<std::vector<double>, FrameCounts::kinds> frames, bytes;
    for (int i = 0; i < (quick_ ? 3 : 7); ++i) {
      auto const before = counts_.snapshot();
      once(chain, mode);
      flush(chain);
      auto const after = counts_.snapshot();
      for (std::size_t k = 0; k < FrameCounts::kinds; ++k) {
        frames[k].push_back(static_cast<double>(after[k].frames - before[k].frames));
        bytes[k].push_back(static_cast<double>(after[k].bytes - before[k].bytes));
      }
    }
    FrameCounts::Snapshot middle;
    for (std::size_t k = 0; k < FrameCounts::kinds; ++k)
      middle[k] = {static_cast<std::uint64_t>(median(frames[k])),
                   static_cast<std::uint64_t>(median(bytes[k]))};
    return middle;
  }
  void flush(Chain const& chain) {
    auto context = driver_.context();
    forward(driver_, chain, at::ones({1}));
  }

  void print(Chain const& chain, Traffic const& traffic, Rounds<Round> const& rounds) {
    auto const workers = driver_.group().size();
    std::string const label =
        setting_.transport + (setting_.on_one_core ? " on one core, " : ", ") +
        std::to_string(workers) + " workers, " + chain.shape + " of " + std::to_string(chain.hops);
    JsonLine json("backward_hops");
    json.add("transport", setting_.transport).add("one_core", setting_.on_one_core);
    json.add("workers", static_cast<double>(workers));
    json.add("shape", chain.shape).add("hops", static_cast<double>(chain.hops));
    std::string human = label + ":";
    auto const hops = static_cast<double>(chain.hops);
    for (std::size_t who = 0; who <= local; ++who) {
      std::string const name = who == local ? "local" : modes[who].name;
      double const us = rounds.median_of([&](Round const& r) { return r[who].wall_us; }) / hops;
      json.add(name + "_us_per_hop", us);
      json.add(name + "_cpu_us_per_hop",
               rounds.median_of([&](Round const& r) { return r[who].cpu_us; }) / hops);
      human += "  " + name + " " + number(us) + " us/hop";
      if (who != local) human += add_traffic(json, name, traffic[who], hops);
    }
    for (std::size_t mode = 0; mode + 1 < mode_count; ++mode)
      human += add_ratio(json, label, chain, mode, rounds);
    json.add("rounds", static_cast<double>(rounds.played.size())).add("quiet", rounds.quiet);
    json.print();
    std::fprintf(stderr, "%s%s\n", human.c_str(), rounds.quiet ? "" : "  [the machine was busy]");
  }

  /// @return what people are told.
  static std::string add_traffic(JsonLine& json, std::string const& name,
                                 FrameCounts::Snapshot const& traffic, double hops) {
    double frames = 0, bytes = 0;
    std::string by_kind;
    for (std::size_t k = 0; k < traffic.size(); ++k) {
      if (!belongs_to_passes(k) || traffic[k].frames == 0) continue;
      frames += static_cast<double>(traffic[k].frames);
      bytes += static_cast<double>(traffic[k].bytes);
      by_kind += (by_kind.empty() ? "" : ",") + ('"' + name_of(k) + "\":") +
                 std::to_string(traffic[k].frames);
    }
    json.add(name + "_messages_per_hop", frames / hops).add(name + "_bytes_per_hop", bytes / hops);
    json.add_raw(name + "_messages", '{' + by_kind + '}');
    return " (" + number(frames / hops) + " messages, " + number(bytes / hops) + " B)";
  }

  /// The median of the rounds' ratios: what drifts from round to round is no part of it.
  std::string add_ratio(JsonLine& json, std::string const& label, Chain const& chain,
                        std::size_t mode, Rounds<Round> const& rounds) {
    constexpr std::size_t reference = mode_count - 1;
    std::string const what = std::string(modes[mode].name) + " / " + modes[reference].name;
    double const ratio =
        rounds.median_of([&](Round const& r) { return r[mode].wall_us / r[reference].wall_us; });
    json.add(std::string(modes[mode].name) + "_over_" + modes[reference].name, ratio);
    bool const has_target = setting_.transport == "loopback" && chain.hops == 50 &&
                            chain.shape == std::string_view("chain");
    return "  " + what + " " + number(ratio) +
           (has_target ? targets_.check(label + ", " + what, ratio, 1.25) : "");
  }

  Setting setting_;
  distgrad::Worker& driver_;
  FrameCounts const& counts_;
  bool quick_;
  Targets& targets_;
};

template <std::size_t Workers, class Transport>
void run_cluster(Setting const& setting, typename Transport::Options transport, bool quick,
                 Targets& targets) {
  using Engine = distgrad::DistEngine<CountingTransport<Transport>, distgrad::CpuQueues>;
  auto const counts = std::make_shared<FrameCounts>();
  OneCore const core(setting.on_one_core);
  typename Engine::Options options;
  options.transport = {std::move(transport), counts};
  options.queues.threads = 2;  // by default it would follow the number of cores
  distgrad::LocalCluster<Workers, Engine> cluster(std::move(options));
  HopBench bench(setting, cluster[0], *counts, quick, targets);
  for (auto const& chain : chains) bench.run(chain);
  cluster.shutdown();
}

}  // namespace

void run_hop_rows(bool quick, Targets& targets) {
  at::set_num_threads(1);
  // Where the kernel spreads the threads, a wake-up between cores can cost more than all the rest,
  // and whether it does changes from second to second. One core shows what a hop itself costs.
  for (bool const on_one_core : {false, true}) {
    run_cluster<2, distgrad::LoopbackTransport>({"loopback", on_one_core}, {}, quick, targets);
    run_cluster<4, distgrad::LoopbackTransport>({"loopback", on_one_core}, {}, quick, targets);
  }
  distgrad::TcpTransport::Options here;
  here.bind_address = "127.0.0.1";
  run_cluster<2, distgrad::TcpTransport>({"tcp", false}, here, quick, targets);
  run_cluster<4, distgrad::TcpTransport>({"tcp", false}, here, quick, targets);
}

}  // namespace bench
