#include <distgrad/core/error.hpp>

#include <doctest/doctest.h>

#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <distgrad/core/exception.hpp>

namespace error_tests {

using namespace distgrad;

static_assert(std::is_base_of_v<Error, RemoteError>);
static_assert(std::is_base_of_v<boost::system::system_error, Error>);
static_assert(std::is_convertible_v<errc, error_code>);

namespace {

constexpr int largest_number = 1000;

ErrorReport report(auto const& thrown) { return describe(std::make_exception_ptr(thrown)); }

bool contains(std::string const& text, char const* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every known number has a name and a sentence of its own") {
  std::map<std::string, int> sentences, names;
  for (int number = 0; number <= largest_number; ++number) {
    if (!is_known_errc(number)) continue;
    auto const sentence = distgrad_category().message(number);
    INFO("number ", number, ": ", sentence);
    CHECK(sentence.size() > 5);
    CHECK_FALSE(contains(sentence, "unknown distgrad error"));
    CHECK(sentences.emplace(sentence, number).second);
    CHECK(names.emplace(error_name(static_cast<errc>(number)), number).second);
  }
  CHECK(sentences.size() >= 35);
}

TEST_CASE("an error's name is its enumerator's, or category and number") {
  CHECK(error_name(errc::peer_lost) == "peer_lost");
  CHECK(error_name({}) == "none");
  CHECK(error_name(make_error_code(static_cast<errc>(999))) == "distgrad:999");
  CHECK(error_name({111, boost::system::system_category()}) == "system:111");
}

TEST_CASE("zero, negative and unassigned numbers are not known") {
  for (int number : {0, -1, 12, 19, 24, 999, 1 << 30}) CHECK_FALSE(is_known_errc(number));
  CHECK(contains(distgrad_category().message(999), "999"));
}

TEST_CASE("published numbers stay what they are") {
  CHECK(int(errc::timeout) == 1);
  CHECK(int(errc::limit_reached) == 11);
  CHECK(int(errc::remote_unknown) == 9);
  CHECK(int(errc::bad_magic) == 20);
  CHECK(int(errc::unknown_worker) == 40);
  CHECK(int(errc::unsupported_tensor) == 60);
  CHECK(int(errc::unknown_function) == 80);
  CHECK(int(errc::not_owner) == 100);
  CHECK(int(errc::no_context) == 120);
  CHECK(int(errc::pass_failed) == 140);
}

TEST_CASE("an errc becomes an error code of our category and never means success") {
  error_code const code = errc::peer_lost;
  CHECK(code.category() == distgrad_category());
  CHECK(code.value() == int(errc::peer_lost));
  CHECK(code.failed());
}

TEST_CASE("callers compare against portable conditions") {
  CHECK(error_code(errc::timeout) == condition::timeout);
  CHECK(error_code(errc::unreachable) == condition::peer_lost);
  CHECK(error_code(errc::truncated) == condition::bad_message);
  CHECK(error_code(errc::bad_magic) == condition::bad_message);
  CHECK(error_code(errc::world_size_mismatch) == condition::refused);
  CHECK(error_code(errc::closed) == condition::closed);

  CHECK(error_code(errc::timeout) != condition::peer_lost);
  CHECK(error_code(errc::pass_failed) != condition::bad_message);
  CHECK(error_code() != condition::timeout);
}

TEST_CASE("a foreign category's number is no condition of ours, even if equal") {
  error_code const foreign(int(errc::timeout), boost::system::generic_category());
  CHECK(foreign != condition::timeout);
}

TEST_CASE("an error carries its code and the description it was given") {
  Error const error(errc::unknown_worker, "no worker 'ps9'; the group has ps0, ps1");
  CHECK(error.code() == errc::unknown_worker);
  CHECK(error.text() == "no worker 'ps9'; the group has ps0, ps1");
  CHECK(contains(error.what(), "ps9"));
  CHECK(contains(error.what(), "no such worker in the group"));
}

TEST_CASE("a remote error names worker, function, call and the original text") {
  RemoteError const error(errc::remote_exception, "ps0", "layer", CallId{17}, "index 9 of 4");
  CHECK(error.worker() == "ps0");
  CHECK(error.function() == "layer");
  CHECK(error.call() == CallId{17});
  CHECK(error.remote_text() == "index 9 of 4");
  for (char const* part : {"ps0", "layer", "index 9 of 4"}) {
    INFO("looking for ", part, " in ", error.what());
    CHECK(contains(error.what(), part));
  }
}

TEST_CASE("a remote error without a function does not mention one") {
  RemoteError const error(errc::peer_lost, "ps0", "", CallId{1}, "connection reset");
  CHECK(error.text() == "on worker 'ps0': connection reset");
}

TEST_CASE("one handler of Error catches every error of the library") {
  auto thrower = [] { throw RemoteError(errc::refused, "w", "f", CallId{1}, "t"); };
  CHECK_THROWS_AS(thrower(), Error const&);
  CHECK_THROWS_AS(thrower(), std::runtime_error const&);
}

TEST_CASE("describing an exception keeps our code and text") {
  auto const ours = report(Error(errc::not_owner, "ask worker 3"));
  CHECK(ours.code == errc::not_owner);
  CHECK(ours.text == "ask worker 3");
  CHECK_FALSE(report(Error(errc::not_owner)).text.empty());
}

TEST_CASE("describing a foreign exception gives the fallback code and its what()") {
  auto const foreign = report(std::out_of_range("index 9"));
  CHECK(foreign.code == errc::remote_exception);
  CHECK(foreign.text == "index 9");

  auto const error = std::make_exception_ptr(std::runtime_error("x"));
  CHECK(describe(error, errc::pass_failed).code == errc::pass_failed);
}

TEST_CASE("describing something that is no std::exception still says so") {
  auto const odd = report(42);
  CHECK(odd.code == errc::remote_exception);
  CHECK_FALSE(odd.text.empty());
}

TEST_CASE("describing no exception is success") {
  auto const nothing = describe(nullptr);
  CHECK_FALSE(nothing.code.failed());
  CHECK(nothing.text.empty());
}

}  // namespace error_tests
