#include <distgrad/rref/rref.hpp>

#include "table_group.hpp"

namespace rref_tests {

using namespace table_group;

namespace {

int tripled_number(int x) { return 3 * x; }
int missing_number(int x) { throw std::runtime_error("no number " + std::to_string(x)); }

class Adder {
 public:
  explicit Adder(int base) : base_(base) {}
  int plus(int x) const { return base_ + x; }

 private:
  int base_;
};
Adder make_adder(int base) { return Adder(base); }

}  // namespace

TEST_CASE("a reference is copied cheaply, and refers to the same value") {
  Group group;
  auto const value = distgrad::detail::create_remote<tripled_number>(*group[0].table, 1, 5);
  auto const copy = value;
  CHECK(copy.id() == value.id());
  CHECK(copy.shared_handle() == value.shared_handle());
  CHECK(copy.owner().name == "w1");
  CHECK_FALSE(copy.is_owner());
  group.settle();
}

TEST_CASE("a user fetches a copy of the value") {
  Group group;
  {
    auto const value = distgrad::detail::create_remote<tripled_number>(*group[0].table, 1, 5);
    auto const fetched = value.async_to_here();
    CHECK_FALSE(fetched.is_ready());
    group.settle();
    REQUIRE(fetched.is_ready());
    CHECK(fetched.get() == 15);
  }
  group.settle();
  CHECK(group.holds_nothing());
}

TEST_CASE("the owner reaches the value itself, a user does not") {
  Group group;
  auto const near = distgrad::detail::create_remote<tripled_number>(*group[0].table, 0, 5);
  auto const far = distgrad::detail::create_remote<tripled_number>(*group[0].table, 1, 5);
  group.settle();
  CHECK(near.is_owner());
  CHECK(near.local_value() == 15);
  near.local_value() = 16;
  CHECK(near.to_here() == 16);
  CHECK(error_of([&] { far.local_value(); }) == errc::not_owner);
}

TEST_CASE("local_value gives up when asked to") {
  Group group;
  auto const value = distgrad::detail::create_remote<tripled_number>(*group[0].table, 0, 5);
  CHECK(error_of([&] { value.local_value(milliseconds(1)); }) == errc::timeout);
  group.settle();
  CHECK(value.local_value(milliseconds(1)) == 15);
}

TEST_CASE("what the creating function threw arrives with its worker and its name") {
  Group group;
  auto const value = distgrad::detail::create_remote<missing_number>(*group[0].table, 1, 5);
  auto const fetched = value.async_to_here();
  group.settle();
  REQUIRE(fetched.is_ready());
  try {
    fetched.get();
    FAIL("no error");
  } catch (RemoteError const& error) {
    CHECK(error.worker() == "w1");
    CHECK(error.function().find("missing_number") != std::string::npos);
    CHECK(error.remote_text() == "no number 5");
  }
}

TEST_CASE("a member function runs on the owner; its result comes back or stays there") {
  Group group;
  {
    auto const adder = distgrad::detail::create_remote<make_adder>(*group[0].table, 1, 5);
    auto const sum = adder.rpc_async<&Adder::plus>(2);
    auto const kept = adder.remote<&Adder::plus>(3);
    auto const fetched = kept.async_to_here();
    group.settle();
    REQUIRE(sum.is_ready());
    REQUIRE(fetched.is_ready());
    CHECK(sum.get() == 7);
    CHECK(fetched.get() == 8);
    CHECK(kept.owner().name == "w1");
  }
  group.settle();
  CHECK(group.holds_nothing());
}

TEST_CASE("a call through a reference that goes away at once is still answered") {
  Group group;
  Future<int> sum;
  {
    auto const adder = distgrad::detail::create_remote<make_adder>(*group[0].table, 1, 5);
    sum = adder.rpc_async<&Adder::plus>(2);
  }
  group.settle();
  REQUIRE(sum.is_ready());
  CHECK(sum.get() == 7);
  CHECK(group.holds_nothing());
}

TEST_CASE("a reference says when it is taken for one to another type") {
  Group group;
  auto const number = distgrad::detail::create_remote<tripled_number>(*group[0].table, 0, 5);
  group.settle();
  RRef<double> const wrong(number.shared_handle());
  CHECK(error_of([&] { wrong.local_value(); }) == errc::invalid_argument);
}

namespace {
struct FirstKept {
  void* handle;
};
struct SecondKept {
  void* handle;
};
}  // namespace

TEST_CASE("references to values of different types have different signatures") {
  CHECK(Codec<RRef<FirstKept>>::signature != Codec<RRef<SecondKept>>::signature);
  CHECK(Codec<RRef<int>>::signature != Codec<RRef<long>>::signature);
}

}  // namespace rref_tests
