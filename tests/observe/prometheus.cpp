#include <distgrad/observe/prometheus.hpp>

#include <string>

#include <doctest/doctest.h>

#include "exposition.hpp"

namespace prometheus_tests {

using namespace distgrad;
using namespace std::chrono_literals;

namespace {

struct Fixture {
  Observer observer{WorkerId{0}, {{{"a", {0}, {}}, "here"}, {{"b", {1}, {}}, "there"}}};
  Metrics& metrics = observer.metrics();
  exposition::Text read() { return exposition::parse(prometheus_text(observer)); }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "an engine that did nothing yet is described all the same") {
  auto const text = read();
  CHECK(text.problems == "");
  CHECK(text.value(R"(distgrad_info{worker="a",rank="0",version="0.1.0"})") == 1);
  CHECK(text.value(R"(distgrad_queue_depth{worker="a"})") == 0);
  CHECK(text.value(R"(distgrad_passes_total{worker="a",mode="fast",role="participant"})") == 0);
}

TEST_CASE_FIXTURE(Fixture, "every count comes out under its labels") {
  auto& series = metrics.made.at("ns::f<int, 3>", WorkerId{1});
  series.begun.add(3);
  series.duration.observe(1ms);
  series.duration.observe(2s);
  series.failures.add(errc::timeout);
  metrics.served.at("g", WorkerId{1}).begun.add(2);
  observer.sent(WorkerId{1}, TrafficKind::call, 100);
  observer.received(WorkerId{0}, TrafficKind::gradient, 7);
  metrics.passes[true][true].gradients_sent.add(5);
  metrics.tasks_waiting.add(4);

  auto const text = read();
  CHECK(text.problems == "");
  std::string const made = R"({worker="a",peer="b",function="ns::f<int, 3>"})";
  CHECK(text.value("distgrad_calls_total" + made) == 3);
  CHECK(text.value("distgrad_call_duration_seconds_count" + made) == 2);
  CHECK(text.value("distgrad_call_duration_seconds_sum" + made) == doctest::Approx(2.001));
  auto const up_to = [&](std::string const& bound) {
    return text.value("distgrad_call_duration_seconds_bucket" + made.substr(0, made.size() - 1) +
                      ",le=\"" + bound + "\"}");
  };
  CHECK(up_to("0.0005") == 0);
  CHECK(up_to("0.001") == 1);
  CHECK(up_to("1") == 1);
  CHECK(up_to("2.5") == 2);
  CHECK(text.value(R"(distgrad_calls_failed_total{worker="a",peer="b",function="ns::f<int, 3>",)"
                   R"(error="timeout"})") == 1);
  CHECK(text.value(R"(distgrad_served_calls_total{worker="a",peer="b",function="g"})") == 2);
  CHECK(text.value(R"(distgrad_sent_bytes_total{worker="a",peer="b",kind="call"})") == 100);
  CHECK(text.value(R"(distgrad_received_messages_total{worker="a",peer="a",kind="gradient"})") ==
        1);
  CHECK(text.value(R"(distgrad_pass_gradients_sent_total{worker="a",mode="smart",)"
                   R"(role="initiator"})") == 5);
  CHECK(text.value(R"(distgrad_queue_depth{worker="a"})") == 4);
}

TEST_CASE_FIXTURE(Fixture, "gauges of the engine are added") {
  GaugeReading const gauges[] = {{"contexts", "Contexts.", 12}};
  auto const text = exposition::parse(prometheus_text(observer, gauges));
  CHECK(text.problems == "");
  CHECK(text.value(R"(distgrad_contexts{worker="a"})") == 12);
}

TEST_CASE_FIXTURE(Fixture, "no name can break the text") {
  std::string const names[] = {"quote\"",
                               "back\\slash",
                               "line\nfeed",
                               "\xff\xfe bytes",
                               "}",
                               "caf\xc3\xa9",
                               "\xed\xa0\x80 surrogate",
                               "",
                               "cut\xe2\x82"};
  for (auto const& name : names) metrics.made.at(name, WorkerId{1}).begun.add();
  auto const text = read();
  CHECK(text.problems == "");
  auto const count = [&](std::string const& function) {
    return text.value("distgrad_calls_total{worker=\"a\",peer=\"b\",function=\"" + function +
                      "\"}");
  };
  CHECK(count("quote\\\"") == 1);
  CHECK(count("back\\\\slash") == 1);
  CHECK(count("line\\nfeed") == 1);
  CHECK(count("caf\xc3\xa9") == 1);
  CHECK(count("\xef\xbf\xbd\xef\xbf\xbd bytes") == 1);
  CHECK(count("cut\xef\xbf\xbd\xef\xbf\xbd") == 1);
}

TEST_CASE("the checker of these tests sees what is wrong") {
  using exposition::parse;
  std::string const head = "# HELP a_total Help.\n# TYPE a_total counter\n";
  CHECK(parse(head + "a_total{x=\"1\"} 1\n").problems == "");
  for (auto const* bad :
       {"a_total{x=\"1\"} 1", "a_total{x=\"1} 1\n", "a_total{x=1} 1\n", "a_total{x=\"1\"} one\n",
        "a_total{x=\"1\",x=\"2\"} 1\n", "a_total{x=\"1\"} 1\na_total{x=\"1\"} 2\n",
        "b_total{x=\"1\"} 1\n", "a_total{1x=\"1\"} 1\n", "a_total{x=\"\\q\"} 1\n",
        "a_total{x=\"1\"} -1\n", "\n", "a_total{x=\"\xff\"} 1\n"}) {
    CAPTURE(bad);
    CHECK(parse(head + bad).problems != "");
  }
  CHECK(parse("# HELP a Help.\n# TYPE a counter\na 1\n").problems != "");  // wants _total
  CHECK(parse(head + head + "a_total 1\n").problems != "");                // twice
  std::string const histogram = "# HELP h_seconds H.\n# TYPE h_seconds histogram\n";
  CHECK(parse(histogram + "h_seconds_bucket{le=\"1\"} 1\nh_seconds_bucket{le=\"+Inf\"} 2\n"
                          "h_seconds_sum 3\nh_seconds_count 2\n")
            .problems == "");
  CHECK(parse(histogram + "h_seconds_bucket{le=\"1\"} 3\nh_seconds_bucket{le=\"+Inf\"} 2\n"
                          "h_seconds_sum 3\nh_seconds_count 2\n")
            .problems != "");
  CHECK(parse(histogram + "h_seconds_bucket{le=\"1\"} 1\nh_seconds_sum 3\nh_seconds_count 1\n")
            .problems != "");
}

}  // namespace prometheus_tests
