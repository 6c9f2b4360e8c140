#include <distgrad/rpc/function_name.hpp>

#include <doctest/doctest.h>

namespace name_test {
template <class T>
T templated(T x) {
  return x;
}
template <auto F, bool>
int wrapped(int x) {
  return F() + x;
}
struct Class {
  int member() { return 1; }
  template <int N>
  int member_template(int x) const {
    return N + x;
  }
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
}

TEST_CASE("closures have names of their own") {
  CHECK(function_name<lambda>().starts_with("lambda:"));
  CHECK(function_name<lambda>() != function_name<other_lambda>());
  CHECK(function_name<lambda>() == function_name<lambda>());
}

TEST_CASE("instances of a function template have names that differ, with every compiler") {
  CHECK(function_name<name_test::templated<int>>() == "name_test::templated<int>");
  CHECK(function_name<&name_test::templated<name_test::Class>>() ==
        "name_test::templated<name_test::Class>");
  CHECK(function_name<name_test::wrapped<name_test::Class::fixed, true>>() ==
        "name_test::wrapped<name_test::Class::fixed,true>");
  CHECK(function_name<name_test::wrapped<hidden_function_for_names, false>>() ==
        "name_test::wrapped<{anonymous}::hidden_function_for_names,false>");
  CHECK(function_name<&name_test::Class::member_template<3>>() ==
        "name_test::Class::member_template<3>");
}

TEST_CASE("the name is found in every form that a demangler gives a function") {
  CHECK(name_in_tag("Tag<&ns::f>") == "ns::f");
  CHECK(name_in_tag("Tag<&(ns::f(int))>") == "ns::f");
  CHECK(name_in_tag("Tag<&ns::f(int)>") == "ns::f");
  CHECK(name_in_tag("Tag<&(anonymous namespace)::f>") == "{anonymous}::f");
  CHECK(name_in_tag("Tag<&(int (anonymous namespace)::f<(anonymous namespace)::T>(int))>") ==
        "{anonymous}::f<{anonymous}::T>");
  CHECK(name_in_tag("Tag<&(std::vector<a, b> ns::C::f<&ns::g, 1>(std::pair<c, d>) const)>") ==
        "ns::C::f<ns::g,1>");
  CHECK(name_in_tag("Tag<&ns::operator<>") == "ns::operator<");
  CHECK(name_in_tag("Tag<&(void (*ns::f<int>(int))(double))>") == "void*ns::f<int>intdouble");
  CHECK(name_in_tag("") == "");
  CHECK(demangled("no mangled name") == "no mangled name");
}

TEST_CASE("the template argument is cut out of what either compiler prints") {
  CHECK(template_argument("std::string_view g() [with T = ns::C; std::string_view = x]") ==
        "ns::C");
  CHECK(template_argument("std::string_view g() [T = ns::C]") == "ns::C");
  CHECK(type_name<int>() == "int");
  CHECK(type_name<name_test::Class>() == "name_test::Class");
}

TEST_CASE("a type's name hashes alike in the spellings of compilers, and unlike for other types") {
  using distgrad::detail::type_name_hash;
  CHECK(type_name_hash("a::(anonymous namespace)::Box<int, 3>") ==
        type_name_hash("a::{anonymous}::Box<int,3>"));
  CHECK(type_name_hash("a::Box<int>") != type_name_hash("a::Box<long>"));
}
