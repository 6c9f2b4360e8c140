#include <distgrad/rpc/registry.hpp>

#include <string>

#include <doctest/doctest.h>

using namespace distgrad;

namespace {
namespace registry_test {

int summation(int x, int y) { return x + y; }
int summations(int x) { return x; }
int unrelated() { return 0; }

template <auto F>
distgrad::detail::ProgramFunction const& program_function() {
  return distgrad::detail::Registered<F>::function;
}
// Being named here is what links them into the program.
auto const& sum = program_function<summation>();
auto const& sums = program_function<summations>();
auto const& other = program_function<unrelated>();

ErrorReport error_of_find(Registry const& registry, std::string_view name,
                          std::uint64_t signature = 0) {
  try {
    registry.find(name, signature);
  } catch (...) {
    return describe(std::current_exception());
  }
  return {};
}

}  // namespace registry_test
}  // namespace

using namespace registry_test;

TEST_CASE("a registry knows every function that the program uses remotely") {
  Registry const registry;
  CHECK(registry.name_of(sum) == "{anonymous}::registry_test::summation");
  CHECK((registry.find(registry.name_of(sum), sum.entry.signature).bind == sum.entry.bind));
  CHECK((registry.find(registry.name_of(other), other.entry.signature).bind == other.entry.bind));
}

TEST_CASE("another signature under the same name is refused") {
  Registry const registry;
  CHECK(sum.entry.signature != sums.entry.signature);
  auto const report = error_of_find(registry, sum.entry.name, sums.entry.signature);
  CHECK(report.code == errc::signature_mismatch);
  CHECK(report.text.find(sum.entry.name) != std::string::npos);
}

TEST_CASE("an unknown name is an error that lists near ones, the nearest first") {
  Registry const registry;
  auto const report = error_of_find(registry, "{anonymous}::registry_test::sumation");
  CHECK(report.code == errc::unknown_function);
  CHECK(report.text.find("sumation'") != std::string::npos);
  auto const near = report.text.find("'" + sum.entry.name + "'");
  auto const farther = report.text.find("'" + sums.entry.name + "'");
  REQUIRE(near != std::string::npos);
  REQUIRE(farther != std::string::npos);
  CHECK(near < farther);
  auto const far = error_of_find(registry, "?!");
  CHECK(far.code == errc::unknown_function);
  CHECK(far.text.find("near") == std::string::npos);
  CHECK(error_of_find(registry, "").code == errc::unknown_function);
  CHECK(error_of_find(registry, std::string(1 << 20, 'x')).code == errc::unknown_function);
}

TEST_CASE("a function can be given a name, for calls in both directions") {
  Registry registry;
  registry.define("sum/v2", sum);
  CHECK(registry.name_of(sum) == "sum/v2");
  CHECK((registry.find("sum/v2", sum.entry.signature).bind == sum.entry.bind));
  CHECK((registry.find(sum.entry.name, sum.entry.signature).bind == sum.entry.bind));
  registry.define("sum/v2", sum);  // once more is no conflict
  registry.define("sum/v3", sum);
  CHECK(registry.name_of(sum) == "sum/v3");
  CHECK((registry.find("sum/v2", sum.entry.signature).bind == sum.entry.bind));
  Registry const another;
  CHECK(another.name_of(sum) == sum.entry.name);
  CHECK(error_of_find(another, "sum/v2").code == errc::unknown_function);
}

TEST_CASE("a name that another function has cannot be given again") {
  Registry registry;
  registry.define("taken", sum);
  CHECK_THROWS_AS(registry.define("taken", other), Error);
  CHECK_THROWS_AS(registry.define(sum.entry.name, other), Error);
  CHECK(registry.name_of(other) == other.entry.name);
  CHECK((registry.find("taken", sum.entry.signature).bind == sum.entry.bind));
}

TEST_CASE("two functions of one name and signature are refused until they get names of their own") {
  // As if two files had a function of this name in their anonymous namespaces.
  static distgrad::detail::ProgramFunction const first(
      {"twin", sum.entry.signature, sum.entry.bind});
  static distgrad::detail::ProgramFunction const second(
      {"twin", sum.entry.signature, other.entry.bind});
  Registry registry;
  auto const report = error_of_find(registry, "twin", sum.entry.signature);
  CHECK(report.code == errc::refused);
  CHECK(report.text.find("define") != std::string::npos);
  registry.define("twin 1", first);
  registry.define("twin 2", second);
  CHECK((registry.find("twin 1", sum.entry.signature).bind == sum.entry.bind));
  CHECK((registry.find("twin 2", sum.entry.signature).bind == other.entry.bind));
}

TEST_CASE("functions of one name are told apart by their signatures") {
  static distgrad::detail::ProgramFunction const first(
      {"overload", sum.entry.signature, sum.entry.bind});
  static distgrad::detail::ProgramFunction const second(
      {"overload", sums.entry.signature, sums.entry.bind});
  Registry registry;
  CHECK((registry.find("overload", sum.entry.signature).bind == sum.entry.bind));
  CHECK((registry.find("overload", sums.entry.signature).bind == sums.entry.bind));
  CHECK(error_of_find(registry, "overload", 1).code == errc::signature_mismatch);
  CHECK_THROWS_AS(registry.define("overload", sum), Error);
}

TEST_CASE("functions of a library that is loaded later are found, too") {
  Registry const registry;
  CHECK(error_of_find(registry, "loaded later").code == errc::unknown_function);
  static distgrad::detail::ProgramFunction const late({"loaded later", 1, sum.entry.bind});
  CHECK((registry.find("loaded later", 1).bind == sum.entry.bind));
}
