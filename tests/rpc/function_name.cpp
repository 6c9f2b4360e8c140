#include <distgrad/rpc/function_name.hpp>

#include <doctest/doctest.h>

namespace name_test {
template <class T>
T templated(T x) {
  return x;
}
struct Class {
  int member() { return 1; }
  static int fixed() { return 2; }
};
}  // namespace name_test

namespace {
int hidden_function_for_names() { return 1; }
constexpr auto lambda = [](int x) { return x; };
constexpr auto other_lambda = [](int x) { return x; };
}  // namespace

using namespace distgrad::detail;

TEST_CASE("a function is called by its qualified name, in one spelling for all compilers") {
  CHECK(function_name<&name_test::Class::fixed>() == "name_test::Class::fixed");
  CHECK(function_name<hidden_function_for_names>() == "{anonymous}::hidden_function_for_names");
  CHECK(function_name<&hidden_function_for_names>() == function_name<hidden_function_for_names>());
  CHECK(function_name<&name_test::Class::member>() == "name_test::Class::member");
  CHECK(function_name<name_test::templated<int>>().starts_with("name_test::templated"));
}

TEST_CASE("closures have names of their own") {
  CHECK(function_name<lambda>().starts_with("lambda:"));
  CHECK(function_name<lambda>() != function_name<other_lambda>());
  CHECK(function_name<lambda>() == function_name<lambda>());
}

TEST_CASE("the spellings of g++ and clang become the same name") {
  CHECK(normalized_name("&ns::f") == "ns::f");
  CHECK(normalized_name("ns::f") == "ns::f");
  CHECK(normalized_name("&(anonymous namespace)::f") == "{anonymous}::f");
  CHECK(normalized_name("(& ns::f)") == "ns::f");
  CHECK(normalized_name("a::(anonymous namespace)::f") == "a::{anonymous}::f");
  CHECK(normalized_name("") == "");
}

TEST_CASE("the template argument is cut out of what either compiler prints") {
  CHECK(template_argument("std::string_view g() [with auto F = ns::f; std::string_view = x]") ==
        "ns::f");
  CHECK(template_argument("std::string_view g() [F = &ns::f]") == "&ns::f");
  CHECK(type_name<int>() == "int");
  CHECK(type_name<name_test::Class>() == "name_test::Class");
}

TEST_CASE("a type's name hashes alike in the spellings of compilers, and unlike for other types") {
  using distgrad::detail::type_name_hash;
  CHECK(type_name_hash("a::(anonymous namespace)::Box<int, 3>") ==
        type_name_hash("a::{anonymous}::Box<int,3>"));
  CHECK(type_name_hash("a::Box<int>") != type_name_hash("a::Box<long>"));
}
