#include <distgrad/core/services.hpp>
//
#include <doctest/doctest.h>

namespace services_tests {

namespace {

struct A {
  int value = 1;
};
struct B {
  int value = 2;
};
struct DerivedFromA : A {};

TEST_CASE("a service is found by exactly its type") {
  distgrad::Services services;
  CHECK(services.find<A>() == nullptr);
  A a;
  B b;
  services.add(a);
  services.add(b);
  CHECK(services.find<A>() == &a);
  CHECK(services.find<B>() == &b);
  CHECK(services.find<DerivedFromA>() == nullptr);
}

TEST_CASE("a later service of a type replaces the earlier one") {
  distgrad::Services services;
  A first, second;
  services.add(first);
  services.add(second);
  CHECK(services.find<A>() == &second);
}

TEST_CASE("two locators know nothing of one another") {
  distgrad::Services one, two;
  A a;
  one.add(a);
  CHECK(two.find<A>() == nullptr);
}

}  // namespace

}  // namespace services_tests
