#include <distgrad/rpc/membership.hpp>

#include <memory>
#include <string>

#include <doctest/doctest.h>

#include <distgrad/core/error.hpp>

namespace membership_tests {

using namespace distgrad;

namespace {

Membership group() {
  return Membership(WorkerId{1}, {{"ps0", {0}, {7}}, {"trainer", {1}, {8}}, {"ps1", {2}, {9}}});
}

std::string text_of_unknown(Membership const& members, WorkerRef const& worker) {
  try {
    members.resolve(worker);
  } catch (Error const& error) {
    CHECK(error.code() == errc::unknown_worker);
    return error.what();
  }
  FAIL_CHECK("a worker was found");
  return {};
}

}  // namespace

TEST_CASE("a worker is found by every way to name it") {
  auto const members = group();
  auto const& ps1 = members.group()[2];
  CHECK(&members.resolve("ps1") == &ps1);
  CHECK(&members.resolve(std::string("ps1")) == &ps1);
  CHECK(&members.resolve(std::string_view("ps1")) == &ps1);
  CHECK(&members.resolve(2) == &ps1);
  CHECK(&members.resolve(WorkerId{2}) == &ps1);
  CHECK(&members.resolve(ps1) == &ps1);
}

TEST_CASE("a group knows which worker it is seen from, and who belongs to it") {
  auto const members = group();
  CHECK(members.self().name == "trainer");
  CHECK(members.group().size() == 3);
  CHECK(members.contains({0}));
  CHECK(members.contains({2}));
  CHECK_FALSE(members.contains({3}));
}

TEST_CASE("an unknown worker is an error that says what was asked for and who is there") {
  auto const members = group();
  for (auto const* name : {"", "ps", "PS0", "ps0 "}) {
    CHECK(text_of_unknown(members, name).find("'" + std::string(name) + "'") != std::string::npos);
  }
  for (int rank : {-1, 3, 1 << 30}) {
    CHECK(text_of_unknown(members, rank).find(std::to_string(rank)) != std::string::npos);
  }
  auto const text = text_of_unknown(members, "ps2");
  for (auto const* name : {"'ps0'", "'trainer'", "'ps1'"}) {
    CHECK(text.find(name) != std::string::npos);
  }
}

TEST_CASE("a rank that came from a peer is named even if nobody has it") {
  auto const members = group();
  CHECK(members.name({0}) == "ps0");
  CHECK(members.name({17}) == "rank 17");
}

TEST_CASE("a copied or moved group finds its own workers") {
  auto original = std::make_unique<Membership>(group());
  Membership const copy = *original;
  Membership const moved = std::move(*original);
  original.reset();
  CHECK(&copy.resolve("ps1") == &copy.group()[2]);
  CHECK(&moved.resolve("ps0") == &moved.group()[0]);
}

}  // namespace membership_tests
