#include <distgrad/observe/json_writer.hpp>

#include <limits>

#include <doctest/doctest.h>

namespace json_writer_tests {

using namespace distgrad;

namespace {

template <class T>
std::string written(T const& value) {
  JsonWriter json;
  json.value(value);
  return json.take();
}

}  // namespace

TEST_CASE("commas and brackets stand where they must, however deep") {
  JsonWriter json;
  json.object([&] {
    json.member("a", 1);
    json.array("b", [&] {
      json.value(1);
      json.array([] {});
      json.object([&] { json.member("c", true); });
    });
    json.object("d", [] {});
    json.member_json("e", "[1,2]");
    json.member("f", "x");
  });
  CHECK(json.take() == R"({"a":1,"b":[1,[],{"c":true}],"d":{},"e":[1,2],"f":"x"})");
}

TEST_CASE("text is escaped, and what is not UTF-8 replaced byte by byte") {
  CHECK(written("a\"b\\c") == R"("a\"b\\c")");
  CHECK(written(std::string("\n\t\x01\x1f", 4)) == R"("\u000a\u0009\u0001\u001f")");
  CHECK(written("caf\xc3\xa9 \xf0\x9f\x99\x82") == "\"caf\xc3\xa9 \xf0\x9f\x99\x82\"");
  CHECK(written("\xff\xc3") == "\"\xef\xbf\xbd\xef\xbf\xbd\"");
  CHECK(written("\xc0\xaf") == "\"\xef\xbf\xbd\xef\xbf\xbd\"");                  // overlong
  CHECK(written("\xed\xa0\x80") == "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");  // surrogate
  CHECK(written("</script>") == R"("</script>")");
}

TEST_CASE("numbers read back as what they were; those JSON lacks are null") {
  CHECK(written(-7) == "-7");
  CHECK(written(std::uint64_t(18446744073709551615u)) == "18446744073709551615");
  CHECK(written(0.1) == "0.1");
  CHECK(written(1e300) == "1e+300");
  CHECK(written(std::numeric_limits<double>::infinity()) == "null");
  CHECK(written(std::numeric_limits<double>::quiet_NaN()) == "null");
  CHECK(written(false) == "false");
}

}  // namespace json_writer_tests
