// What an engine records of calls and passes, as Chrome's trace format has it.
#include "rig.hpp"

#include <ATen/ops/ones.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/json/src.hpp>

namespace trace_tests {

namespace {

namespace json = boost::json;
using rig::LoopbackEngine;

at::Tensor traced_twice(at::Tensor const& x) { return x.mul(2); }
at::Tensor traced_relay(at::Tensor const& x) {
  return distgrad::this_worker().rpc_sync<traced_twice>("worker2", x).mul(3);
}
at::Tensor traced_failure(at::Tensor const&) { throw std::runtime_error("on purpose"); }

LoopbackEngine::Options traced(std::size_t events = 10'000) {
  auto options = rig::options<LoopbackEngine>();
  options.trace_events = events;
  return options;
}

/// An event of a trace, as far as the tests look.
struct Event {
  explicit Event(json::value const& value) : all(value.as_object()) {}
  std::string text(char const* key) const { return std::string(all.at(key).as_string()); }
  std::string arg(char const* key) const {
    auto const* found = all.at("args").as_object().if_contains(key);
    return found ? std::string(found->as_string()) : "";
  }
  double number(char const* key) const { return all.at(key).to_number<double>(); }
  double end() const { return number("ts") + number("dur"); }
  bool is(char const* phase, char const* category = nullptr) const {
    return text("ph") == phase && (!category || text("cat") == category);
  }
  bool is_inside(Event const& outer) const {
    return number("pid") == outer.number("pid") && number("tid") == outer.number("tid") &&
           number("ts") >= outer.number("ts") && end() <= outer.end() + 1e-6;
  }
  bool is_apart(Event const& other) const {
    return number("pid") != other.number("pid") || number("tid") != other.number("tid") ||
           end() <= other.number("ts") + 1e-6 || other.end() <= number("ts") + 1e-6;
  }
  json::object all;
};
using Events = std::vector<Event>;

Events events_of(json::value const& trace) {
  Events events;
  for (auto const& event : trace.at("traceEvents").as_array()) events.emplace_back(event);
  return events;
}
Events select(Events const& events, char const* phase, char const* category) {
  Events some;
  for (auto const& event : events) {
    if (event.is(phase, category)) some.push_back(event);
  }
  return some;
}
template <std::size_t N>
Events all_of(rig::Cluster<N, LoopbackEngine>& cluster) {
  Events all;
  for (std::size_t i = 0; i < N; ++i) {
    for (auto& event : events_of(json::parse(cluster[i].trace()))) all.push_back(std::move(event));
  }
  return all;
}

template <auto F>
std::string name_of() {
  return std::string(distgrad::detail::Registered<F>::function.entry.name);
}

/// Calls, a nested call, a remote value and a pass that goes through all three workers.
struct Fixture {
  rig::Cluster<3, LoopbackEngine> cluster{traced()};

  Fixture() {
    auto const kept = cluster[0].remote<traced_twice>("worker1", at::ones({2}));
    (void)kept.to_here();
    CHECK_THROWS(cluster[0].rpc_sync<traced_failure>("worker1", at::ones({2})));
    {
      auto context = cluster[0].context();
      auto const x = at::ones({4}).set_requires_grad(true);
      context.backward({cluster[0].rpc_sync<traced_relay>("worker1", x).sum()});
    }
    for (auto& engine : cluster) {
      CHECK(rig::eventually([&] { return engine->debug_info().backward_passes == 0; }));
    }
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "every arrow of a trace has two ends, in two boxes") {
  auto const events = all_of(cluster);
  std::map<std::string, std::vector<Event>> arrows;
  for (auto const& event : events) {
    if (!event.is("s") && !event.is("f")) continue;
    arrows[event.text("id")].push_back(event);
    bool is_in_box = false;
    for (auto const& box : events) {
      if (!box.is("X") || box.number("pid") != event.number("pid")) continue;
      is_in_box =
          is_in_box || (box.number("tid") == event.number("tid") &&
                        box.number("ts") <= event.number("ts") && event.number("ts") < box.end());
    }
    CHECK(is_in_box);
  }
  std::map<std::string, int> count;
  for (auto const& [id, ends] : arrows) {
    REQUIRE(ends.size() == 2);
    CHECK(ends[0].text("name") == ends[1].text("name"));
    CHECK(ends[0].is("s") != ends[1].is("s"));
    CHECK(ends[0].number("pid") != ends[1].number("pid"));
    ++count[ends[0].text("name")];
  }
  CHECK(count["call"] == 5);    // remote, to_here, the failure, and two nested ones
  CHECK(count["answer"] == 4);  // that of remote is only a receipt
  CHECK(count["gradient"] == 4);
}

TEST_CASE_FIXTURE(Fixture, "boxes of one lane are inside one another or apart") {
  auto const boxes = select(all_of(cluster), "X", nullptr);
  CHECK(boxes.size() == 5 + 5 + 3);
  for (auto const& a : boxes) {
    for (auto const& b : boxes) {
      CHECK((a.is_apart(b) || a.is_inside(b) || b.is_inside(a)));
    }
  }
}

TEST_CASE_FIXTURE(Fixture, "a call that a function makes is drawn inside it, with its numbers") {
  auto const events = events_of(json::parse(cluster[1].trace()));
  auto const calls = select(events, "X", "call");
  REQUIRE(calls.size() == 1);
  CHECK(calls[0].text("name") == name_of<traced_twice>());
  CHECK(calls[0].arg("to") == "worker2");
  CHECK(calls[0].arg("call").starts_with("1/"));
  CHECK(calls[0].all.at("args").at("sent_bytes").to_number<int>() > 0);
  CHECK(calls[0].all.at("args").at("received_bytes").to_number<int>() > 0);
  bool is_inside = false;
  for (auto const& function : select(events, "X", "function")) {
    if (function.text("name") != name_of<traced_relay>()) continue;
    is_inside = calls[0].is_inside(function);
    CHECK(function.arg("from") == "worker0");
  }
  CHECK(is_inside);
}

TEST_CASE_FIXTURE(Fixture, "a failed call says why on both sides") {
  for (std::size_t i : {0, 1}) {
    int failures = 0;
    for (auto const& box : select(events_of(json::parse(cluster[i].trace())), "X", nullptr)) {
      if (box.arg("error").empty()) continue;
      ++failures;
      CHECK(box.text("name") == name_of<traced_failure>());
      CHECK(box.arg("error") == "remote_exception");
    }
    CHECK(failures == 1);
  }
}

TEST_CASE_FIXTURE(Fixture, "a pass is one box on each worker that takes part, by one name") {
  auto const passes = select(all_of(cluster), "X", "pass");
  REQUIRE(passes.size() == 3);
  for (auto const& pass : passes) {
    CHECK(pass.text("name") == "backward, SMART");
    CHECK(pass.arg("pass") == passes[0].arg("pass"));
    CHECK(pass.arg("initiator") == "worker0");
  }
  CHECK(passes[0].number("dur") >= 0);
  CHECK(select(all_of(cluster), "i", "gradient").size() == 8);
}

TEST_CASE("a trace that is full says how much it lacks") {
  rig::Cluster<1, LoopbackEngine> cluster(traced(4));
  for (int i = 0; i < 5; ++i) cluster[0].rpc_sync<traced_twice>("worker0", at::ones({2}));
  auto const trace = json::parse(cluster[0].trace());
  CHECK(trace.at("otherData").at("dropped").to_number<int>() == 6);
  CHECK(trace.at("otherData").at("worker").as_string() == "worker0");
  CHECK(select(events_of(trace), "X", nullptr).size() == 4);
}

TEST_CASE("an engine that is not traced says how to have it traced") {
  rig::Cluster<1, LoopbackEngine> cluster;
  CHECK(rig::text_of([&] { (void)cluster[0].trace(); }).find("DISTGRAD_TRACE") !=
        std::string::npos);
}

// --- DISTGRAD_TRACE ------------------------------------------------------------------------------

namespace {

/// Sets the variable for engines that are made while it lives.
struct Asked {
  explicit Asked(std::filesystem::path const& path) { ::setenv("DISTGRAD_TRACE", path.c_str(), 1); }
  ~Asked() { ::unsetenv("DISTGRAD_TRACE"); }
};

struct Folder {
  Folder() { std::filesystem::create_directory(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("distgrad-trace-" + std::to_string(::getpid()));
};

}  // namespace

TEST_CASE("the variable has every worker write a file of its own when it ends") {
  Folder folder;
  {
    Asked const asked(folder.path / "run.v1.json");
    rig::Cluster<2, LoopbackEngine> cluster;
    cluster[0].rpc_sync<traced_twice>("worker1", at::ones({2}));
    cluster.shutdown();
  }
  for (int rank : {0, 1}) {
    std::ifstream file(folder.path / ("run.v1." + std::to_string(rank) + ".json"));
    std::stringstream text;
    text << file.rdbuf();
    auto const trace = json::parse(text.str());
    CHECK(trace.at("otherData").at("rank").to_number<int>() == rank);
    CHECK(select(events_of(trace), "X", nullptr).size() == 1);
  }
}

TEST_CASE("a trace that could not be written is refused at the start") {
  Asked const asked("/no/such/folder/trace.json");
  CHECK(rig::error_of([] { rig::Cluster<1, LoopbackEngine> cluster; }) ==
        distgrad::errc::invalid_argument);
  CHECK(rig::text_of([] {
          rig::Cluster<1, LoopbackEngine> cluster;
        }).find("/no/such/folder/trace.0.json") != std::string::npos);
}

TEST_CASE("the rank stands before the ending of the file's name, wherever that is") {
  auto const path = [](char const* name) {
    return distgrad::TraceFile::path_of(name, distgrad::WorkerId{12});
  };
  CHECK(path("trace.json") == "trace.12.json");
  CHECK(path("a.b/trace") == "a.b/trace.12");
  CHECK(path("/tmp/.hidden") == "/tmp/.hidden.12");
}

}  // namespace trace_tests
