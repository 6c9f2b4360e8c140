#include <distgrad/rendezvous/detail/registration_table.hpp>

#include <doctest/doctest.h>

namespace registration_table_tests {

namespace {

using namespace distgrad;
using distgrad::detail::RegistrationTable;

PeerAddress worker(std::uint32_t rank, std::string name) {
  return {{std::move(name), WorkerId{rank}, Incarnation{1}}, "e"};
}

}  // namespace

TEST_CASE("a table is complete when every rank has registered, and lists them in order") {
  RegistrationTable table(2);
  CHECK(!table.add({worker(1, "b"), 2}));
  CHECK(!table.is_complete());
  CHECK(table.missing_text() == "rank 0 of 2");
  CHECK(!table.add({worker(0, "a"), 2}));
  CHECK(table.is_complete());
  CHECK(table.group() == std::vector{worker(0, "a"), worker(1, "b")});
}

TEST_CASE("a removed worker may register again, under another name, too") {
  RegistrationTable table(2);
  CHECK(!table.add({worker(1, "b"), 2}));
  table.remove({1});
  CHECK(!table.add({worker(1, "c"), 2}));
}

TEST_CASE("a contradiction leaves the table as it was") {
  RegistrationTable table(3);
  CHECK(!table.add({worker(0, "a"), 3}));
  CHECK(table.add({worker(0, "b"), 3})->code == errc::duplicate_rank);
  CHECK(table.add({worker(1, "a"), 3})->code == errc::duplicate_name);
  CHECK(table.add({worker(1, "b"), 2})->code == errc::world_size_mismatch);
  CHECK(table.add({worker(3, "b"), 3})->code == errc::invalid_argument);
  CHECK(table.add({worker(1, ""), 3})->code == errc::invalid_name);
  CHECK(table.add({worker(1, std::string(128, 'x')), 3})->code == errc::invalid_name);
  CHECK(table.missing_text() == "ranks 1 and 2 of 3");
}

TEST_CASE("a long list of missing ranks is cut") {
  CHECK(RegistrationTable(64).missing_text() ==
        "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 48 more of 64");
}

TEST_CASE("times are told in tenths of a second") {
  CHECK(distgrad::detail::seconds_text(milliseconds(2549)) == "2.5 s");
  CHECK(distgrad::detail::seconds_text(milliseconds(0)) == "0.0 s");
}

}  // namespace registration_table_tests
