#include <distgrad/wire/error_frame.hpp>

#include <random>

#include <doctest/doctest.h>

namespace error_frame_tests {

using namespace distgrad;

namespace {

WireError over_the_wire(WireError const& error) {
  Writer out;
  write_error(out, error);
  Reader in(out.bytes());
  auto const got = read_error(in);
  CHECK(in.ok());
  CHECK(in.at_end());
  return got;
}

}  // namespace

TEST_CASE("an error arrives with its number, place, call and text") {
  auto const got = over_the_wire({errc::not_owner, "ps0", "layer", CallId{4}, "a text"});
  CHECK(got.code == errc::not_owner);
  CHECK(got.worker == "ps0");
  CHECK(got.function == "layer");
  CHECK(got.call == CallId{4});
  CHECK(got.text == "a text");
}

TEST_CASE("an error of another library arrives as a remote exception") {
  auto const foreign = boost::system::errc::make_error_code(boost::system::errc::no_such_process);
  CHECK(over_the_wire({foreign, "w", {}, {}, "t"}).code == errc::remote_exception);
}

TEST_CASE("a number from a later version becomes remote_unknown and keeps its text") {
  auto const later = error_code(9999, distgrad_category());
  auto const got = over_the_wire({later, "w", {}, {}, "from the future"});
  CHECK(got.code == errc::remote_unknown);
  CHECK(got.text == "from the future");
}

TEST_CASE("a very long error text is cut") {
  auto const got = over_the_wire({errc::internal, "w", {}, {}, std::string(1 << 20, 'x')});
  CHECK(got.text.size() == max_error_text_bytes);
}

TEST_CASE("an error that is cut off anywhere fails to decode") {
  Writer out;
  write_error(out, {errc::timeout, "worker", "function", CallId{1}, "text"});
  for (std::size_t size = 0; size < out.size_bytes(); ++size) {
    Reader in(std::span(out.bytes()).first(size));
    read_error(in);
    CHECK(!in.ok());
  }
}

TEST_CASE("random bytes decode to some error or fail") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes(random() % 60);
    for (auto& b : bytes) b = static_cast<std::byte>(random() % 4 ? random() % 6 : random());
    Reader in(bytes);
    auto const error = read_error(in);
    REQUIRE(error.code.category() == distgrad_category());
    REQUIRE(error.text.size() <= bytes.size());
  }
}

}  // namespace error_frame_tests
