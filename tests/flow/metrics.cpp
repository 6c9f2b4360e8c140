// What an engine counts, seen from outside: as Prometheus text, and as records of passes.
#include "rig.hpp"

#include <ATen/ops/ones.h>

#include <stdexcept>
#include <string>

#include "../observe/exposition.hpp"

namespace metrics_tests {

namespace {

at::Tensor metered_twice(at::Tensor const& x) { return x.mul(2); }
at::Tensor fail_always(at::Tensor const&) { throw std::runtime_error("on purpose"); }
int never(int) { return 0; }

template <class Engine>
typename Engine::Options watched() {
  auto options = rig::options<Engine>();
  options.metrics = true;
  return options;
}

exposition::Text read(distgrad::Worker const& worker) {
  auto text = exposition::parse(worker.metrics_text());
  CHECK(text.problems == "");
  return text;
}

template <auto F>
std::string labels(std::string const& worker, std::string const& peer) {
  return "{worker=\"" + worker + "\",peer=\"" + peer + "\",function=\"" +
         std::string(distgrad::detail::Registered<F>::function.entry.name) + "\"";
}

}  // namespace

TEST_CASE_TEMPLATE("calls are counted by function and peer, on both sides", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster(watched<Engine>());
  auto const x = at::ones({4});
  for (int i = 0; i < 5; ++i) cluster[0].template rpc_sync<metered_twice>("worker1", x);
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS(cluster[0].template rpc_sync<fail_always>("worker1", x));
  }
  cluster[0].template rpc_sync<metered_twice>("worker0", x);

  auto const caller = read(cluster[0]), callee = read(cluster[1]);
  auto const there = labels<metered_twice>("worker0", "worker1");
  CHECK(caller.value("distgrad_calls_total" + there + "}") == 5);
  CHECK(caller.value("distgrad_call_duration_seconds_count" + there + "}") == 5);
  CHECK(caller.value("distgrad_calls_total" + labels<metered_twice>("worker0", "worker0") + "}") ==
        1);
  auto const failing = labels<fail_always>("worker0", "worker1");
  CHECK(caller.value("distgrad_calls_failed_total" + failing + ",error=\"remote_exception\"}") ==
        2);
  CHECK(caller.value("distgrad_call_duration_seconds_count" + failing + "}") == 2);
  CHECK(caller.sum("distgrad_calls_failed_total") == 2);
  CHECK(caller.value("distgrad_calls_in_flight{worker=\"worker0\"}") == 0);

  CHECK(callee.value("distgrad_served_calls_total" + labels<metered_twice>("worker1", "worker0") +
                     "}") == 5);
  CHECK(callee.value("distgrad_served_calls_failed_total" +
                     labels<fail_always>("worker1", "worker0") + ",error=\"remote_exception\"}") ==
        2);
  CHECK(callee.sum("distgrad_calls_total") == 0);
}

TEST_CASE_TEMPLATE("a call that gets no answer is counted with why", Engine, DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster(watched<Engine>());
  auto future = cluster[0].template rpc_async<never>("worker1", 1);
  future.wait();
  auto cancelled = cluster[0].template rpc_async<metered_twice>("worker1", at::ones({2}));
  cancelled.cancel();
  cluster[1].stop();
  CHECK(rig::error_of([&] {
          while (true) cluster[0].template rpc_sync<never>("worker1", 1);
        }) == distgrad::condition::closed);
  auto const text = read(cluster[0]);
  CHECK(text.value("distgrad_calls_failed_total" + labels<never>("worker0", "worker1") +
                   ",error=\"closed\"}") == 1);
  auto const answered =
      text.value("distgrad_calls_failed_total" + labels<metered_twice>("worker0", "worker1") +
                 ",error=\"cancelled\"}");
  CHECK((answered == 1 || answered == -1));  // its answer may have been faster
  CHECK(text.sum("distgrad_calls_total") == text.sum("distgrad_call_duration_seconds_count"));
}

TEST_CASE_TEMPLATE("what one worker sent the other received", Engine, DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster(watched<Engine>());
  auto const x = at::ones({1000}).set_requires_grad(true);
  {
    auto context = cluster[0].context();
    auto y = cluster[0].template rpc_sync<metered_twice>("worker1", x);
    context.backward({y.sum()});
  }
  cluster.shutdown();  // all messages have arrived
  auto const a = read(cluster[0]), b = read(cluster[1]);
  for (std::string const kind : {"call", "answer", "gradient"}) {
    CAPTURE(kind);
    auto const at = [&](exposition::Text const& text, std::string const& name,
                        std::string const& self, std::string const& peer) {
      return text.value("distgrad_" + name + "{worker=\"" + self + "\",peer=\"" + peer +
                        "\",kind=\"" + kind + "\"}");
    };
    for (std::string const unit : {"messages", "bytes"}) {
      CHECK(at(a, "sent_" + unit + "_total", "worker0", "worker1") ==
            at(b, "received_" + unit + "_total", "worker1", "worker0"));
      CHECK(at(b, "sent_" + unit + "_total", "worker1", "worker0") ==
            at(a, "received_" + unit + "_total", "worker0", "worker1"));
    }
  }
  auto const bytes = [](exposition::Text const& text, std::string const& self,
                        std::string const& peer) {
    return text.value("distgrad_sent_bytes_total{worker=\"" + self + "\",peer=\"" + peer +
                      "\",kind=\"gradient\"}");
  };
  CHECK(bytes(a, "worker0", "worker1") > 4000);  // a gradient there, and one back
  CHECK(bytes(b, "worker1", "worker0") > 4000);
}

TEST_CASE_TEMPLATE("passes are counted by mode, role and outcome, with their hops", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster(watched<Engine>());
  {
    auto context = cluster[0].context();
    auto const x = at::ones({4}).set_requires_grad(true);
    auto y = cluster[0].template rpc_sync<metered_twice>("worker1", x);
    y = cluster[0].template rpc_sync<metered_twice>("worker1", y);
    context.backward({y.sum()}, {.retain_graph = true});
    context.backward({y.sum()}, {.mode = distgrad::BackwardMode::fast});
    CHECK_THROWS(context.backward({at::ones({1})}));
  }
  CHECK(rig::eventually([&] { return cluster[1].debug_info().backward_passes == 0; }));
  auto const a = read(cluster[0]), b = read(cluster[1]);
  auto const at = [](exposition::Text const& text, std::string const& name,
                     std::string const& worker, std::string const& rest) {
    return text.value("distgrad_" + name + "{worker=\"" + worker + "\"," + rest + "}");
  };
  std::string const smart = R"(mode="smart",role="initiator")";
  CHECK(at(a, "passes_total", "worker0", smart) == 2);
  CHECK(at(a, "passes_failed_total", "worker0", smart + R"(,error="invalid_root")") == 1);
  CHECK(at(a, "pass_duration_seconds_count", "worker0", smart) == 2);
  CHECK(at(a, "pass_gradients_sent_total", "worker0", smart) == 2);
  CHECK(at(a, "pass_gradients_received_total", "worker0", smart) == 2);
  CHECK(at(a, "passes_total", "worker0", R"(mode="fast",role="initiator")") == 1);
  CHECK(at(b, "passes_total", "worker1", R"(mode="smart",role="participant")") == 1);
  CHECK(at(b, "pass_gradients_received_total", "worker1", R"(mode="smart",role="participant")") ==
        2);
  CHECK(at(b, "passes_total", "worker1", R"(mode="fast",role="participant")") == 1);

  auto const records = cluster[0].observer()->metrics().pass_history.snapshot();
  REQUIRE(records.size() == 3);
  CHECK(records[0].is_smart);
  CHECK(records[0].is_initiator);
  CHECK(records[0].gradients_sent == 2);
  CHECK(records[0].duration > records[0].duration.zero());
  CHECK_FALSE(records[1].is_smart);
  CHECK(records[2].error == distgrad::errc::invalid_root);
}

TEST_CASE_TEMPLATE("references, contexts and tasks show while they are there", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster(watched<Engine>());
  {
    auto context = cluster[0].context();
    auto const value = cluster[0].template remote<metered_twice>("worker1", at::ones({2}));
    (void)value.to_here();
    auto const user = read(cluster[0]), owner = read(cluster[1]);
    CHECK(user.value(R"(distgrad_rrefs_used{worker="worker0"})") == 1);
    CHECK(owner.value(R"(distgrad_rrefs_owned{worker="worker1"})") == 1);
    CHECK(owner.value(R"(distgrad_rref_forks{worker="worker1"})") == 1);
    CHECK(user.value(R"(distgrad_contexts{worker="worker0"})") == 1);
    CHECK(cluster[0].contexts().size() == 1);
    CHECK(owner.value(R"(distgrad_queue_wait_seconds_count{worker="worker1"})") >= 1);
  }
  CHECK(rig::eventually([&] {
    auto const text = read(cluster[1]);
    return text.value(R"(distgrad_rrefs_owned{worker="worker1"})") == 0 &&
           text.value(R"(distgrad_contexts{worker="worker1"})") == 0 &&
           text.value(R"(distgrad_queue_depth{worker="worker1"})") == 0;
  }));
}

TEST_CASE("an engine that is not watched counts nothing, and says how to have it counted") {
  rig::Cluster<1, rig::LoopbackEngine> cluster;
  CHECK(cluster[0].observer() == nullptr);
  CHECK(rig::text_of([&] { (void)cluster[0].metrics_text(); }).find("EngineOptions::metrics") !=
        std::string::npos);
}

}  // namespace metrics_tests
