// What an engine logs, to a sink of the program's and as JSON.
#include "rig.hpp"

#include <ATen/ops/ones.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "../observe/log_book.hpp"

namespace log_tests {

namespace {

using log_book::LogBook;

at::Tensor twice(at::Tensor const& x) { return x.mul(2); }
at::Tensor fails(at::Tensor const&) { throw std::runtime_error("on purpose"); }
at::Tensor fails_oddly(at::Tensor const&) {
  throw std::runtime_error("no \"row\"\n\xff\t of this name");
}

at::Tensor breaks_backward(at::Tensor const& x) {
  auto const y = x.mul(2);
  y.register_hook([](at::Tensor) -> at::Tensor { throw std::runtime_error("broken on purpose"); });
  return y;
}

template <class Engine>
typename Engine::Options logging(distgrad::LogSink sink, distgrad::LogLevel least) {
  auto options = rig::options<Engine>();
  options.log = std::move(sink);
  options.log_level = least;
  return options;
}

template <class Engine>
void fail_on_worker1(rig::Cluster<2, Engine>& cluster) {
  CHECK_THROWS(cluster[0].template rpc_sync<fails>("worker1", at::ones({2})));
}

}  // namespace

TEST_CASE_TEMPLATE("how a group comes and goes is in the log", Engine, DISTGRAD_ENGINES) {
  LogBook book;
  rig::Cluster<2, Engine> cluster(logging<Engine>(book.sink(), distgrad::LogLevel::debug));
  auto const listening = book.of("worker1", "listening");
  REQUIRE(listening.size() == 1);
  auto const complete = book.of("worker0", "the group is complete");
  REQUIRE(complete.size() == 1);
  CHECK((complete[0].fields == log_book::Fields{{"rank", "0"}, {"world_size", "2"}}));
  auto const joined = book.of("worker0", "a peer joined");
  REQUIRE(joined.size() == 1);
  CHECK((joined[0].level == distgrad::LogLevel::debug));
  CHECK((joined[0].fields == log_book::Fields{{"peer", "worker1"},
                                              {"rank", "1"},
                                              {"endpoint", listening[0].fields.at("endpoint")}}));

  cluster[0].template rpc_sync<twice>("worker1", at::ones({2}));
  cluster[1].stop();
  REQUIRE(rig::eventually([&] { return !book.of("worker0", "a peer left").empty(); }));
  CHECK((book.of("worker0", "a peer left")[0].fields == log_book::Fields{{"peer", "worker1"}}));
  CHECK(book.of("worker1", "the engine ended").size() == 1);
  CHECK(book.of("worker0", "the engine ended").empty());
  cluster[0].shutdown();
  auto const all = book.all();
  CHECK(book.of("worker0", "shutdown began").size() == 1);
  CHECK(all.back().worker == "worker0");
  CHECK(all.back().text == "the engine ended");
}

TEST_CASE_TEMPLATE("a function that fails is in the log of its worker, with whom and why", Engine,
                   DISTGRAD_ENGINES) {
  LogBook book;
  rig::Cluster<2, Engine> cluster(logging<Engine>(book.sink(), distgrad::LogLevel::info));
  fail_on_worker1(cluster);
  auto const failed = book.of("worker1", "a function failed");
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].component == "rpc");
  CHECK((failed[0].level == distgrad::LogLevel::info));
  auto const& fields = failed[0].fields;
  CHECK(fields.at("function") == distgrad::detail::Registered<fails>::function.entry.name);
  CHECK(fields.at("peer") == "worker0");
  CHECK(fields.at("call") == "1");
  CHECK(fields.at("error") == "remote_exception");
  CHECK(fields.at("reason").find("on purpose") != std::string::npos);
  CHECK(book.of("worker0", "a function failed").empty());
}

TEST_CASE_TEMPLATE("a backward pass that fails is in the log of all that took part", Engine,
                   DISTGRAD_ENGINES) {
  LogBook book;
  rig::Cluster<2, Engine> cluster(logging<Engine>(book.sink(), distgrad::LogLevel::info));
  {
    auto context = cluster[0].context();
    auto const x = at::ones({2}).set_requires_grad(true);
    auto const y = cluster[0].template rpc_sync<twice>("worker1", x);
    context.backward({y.sum()});
  }
  {
    auto context = cluster[0].context();
    auto const x = at::ones({2}).set_requires_grad(true);
    auto const y = cluster[0].template rpc_sync<breaks_backward>("worker1", x);
    CHECK_THROWS(context.backward({y.sum()}));
  }
  std::string pass;
  for (auto const* worker : {"worker0", "worker1"}) {
    CAPTURE(worker);
    auto const text = "a backward pass failed";
    REQUIRE(rig::eventually([&] { return !book.of(worker, text).empty(); }));
    REQUIRE(book.of(worker, text).size() == 1);
    auto const fields = book.of(worker, text)[0].fields;
    CHECK(fields.at("role") == (worker == std::string("worker0") ? "initiator" : "participant"));
    CHECK(fields.at("error") == "pass_failed");
    CHECK(fields.at("origin") == "worker1");
    CHECK(fields.at("node").find("Mul") != std::string::npos);
    CHECK(fields.at("reason").find("broken on purpose") != std::string::npos);
    CHECK((pass.empty() || pass == fields.at("pass")));
    pass = fields.at("pass");
  }
}

TEST_CASE("an engine's log begins at warnings unless told otherwise, and its sink may throw") {
  LogBook book;
  auto options = rig::options<rig::LoopbackEngine>();
  options.log = [sink = book.sink()](distgrad::LogRecord const& record) {
    sink(record);
    throw std::runtime_error("the disk is full");
  };
  {
    rig::Cluster<2, rig::LoopbackEngine> quiet(options);
    fail_on_worker1(quiet);
    quiet.shutdown();
  }
  CHECK(book.all().empty());
  options.log_level = distgrad::LogLevel::info;
  rig::Cluster<2, rig::LoopbackEngine> cluster(options);
  fail_on_worker1(cluster);
  fail_on_worker1(cluster);
  CHECK(book.of("worker1", "a function failed").size() == 2);
}

TEST_CASE("a log in JSON reads back, whatever a function threw") {
  auto* const file = std::tmpfile();
  REQUIRE(file);
  {
    rig::Cluster<2, rig::LoopbackEngine> cluster(
        logging<rig::LoopbackEngine>(distgrad::log_json_to(file), distgrad::LogLevel::debug));
    CHECK_THROWS(cluster[0].rpc_sync<fails_oddly>("worker1", at::ones({2})));
    cluster.shutdown();
  }
  std::rewind(file);
  int failures = 0, records = 0;
  for (char line[4096]; std::fgets(line, sizeof line, file); ++records) {
    auto const record = boost::json::parse(line);
    CHECK(record.as_object().size() == 6);
    CHECK(record.at("time").as_string().ends_with("Z"));
    if (record.at("text").as_string() != "a function failed") continue;
    ++failures;
    CHECK(record.at("level").as_string() == "info");
    CHECK(record.at("worker").as_string() == "worker1");
    CHECK(record.at("component").as_string() == "rpc");
    auto const& fields = record.at("fields");
    CHECK(fields.at("call").to_number<int>() == 1);
    CHECK(fields.at("reason").as_string() == "no \"row\"\n\xef\xbf\xbd\t of this name");
  }
  std::fclose(file);
  CHECK(failures == 1);
  CHECK(records >= 2 * 5 + 1);  // each worker: listening, complete, a peer, shutdown, end
}

}  // namespace log_tests
