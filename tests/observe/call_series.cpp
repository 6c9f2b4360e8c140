#include <distgrad/observe/call_series.hpp>

#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

namespace call_series_tests {

using namespace distgrad;

TEST_CASE("a series is known by function and peer, whatever memory the name lies in") {
  CallSeriesTable table;
  auto& series = table.at("f", WorkerId{1});
  std::string const same = "f";
  CHECK(&table.at(same, WorkerId{1}) == &series);
  CHECK(&table.at("f", WorkerId{2}) != &series);
  CHECK(&table.at("g", WorkerId{1}) != &series);
  auto const all = table.all();
  REQUIRE(all.size() == 3);
  CHECK(all[0] == &series);
  CHECK(all[1]->peer == WorkerId{2});
  CHECK(all[2]->function == "g");
}

TEST_CASE("a peer that is asked for more functions than there may be shares one series") {
  CallSeriesTable table;
  for (std::size_t i = 0; i < CallSeriesTable::max_series + 100; ++i) {
    table.at("f" + std::to_string(i), WorkerId{0}).begun.add();
  }
  CHECK(table.all().size() == CallSeriesTable::max_series + 1);
  CHECK(table.at(CallSeriesTable::overflow_name, WorkerId{0}).begun.value() == 100);
  CHECK(table.at("f0", WorkerId{0}).begun.value() == 1);  // those that are there stay
}

TEST_CASE("threads that ask for the same series at the same time get the same") {
  CallSeriesTable table;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        table.at("f" + std::to_string(i % 50), WorkerId{0}).begun.add();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  auto const all = table.all();
  CHECK(all.size() == 50);
  for (auto const* series : all) CHECK(series->begun.value() == 160);
}

TEST_CASE("failures are counted by the error's name") {
  FailureCounts failures;
  failures.add(errc::timeout);
  failures.add(errc::timeout);
  failures.add(errc::peer_lost);
  CHECK(failures.snapshot() ==
        std::map<std::string, std::uint64_t>{{"timeout", 2}, {"peer_lost", 1}});
}

}  // namespace call_series_tests
