#include <distgrad/observe/log.hpp>

#include <array>
#include <stdexcept>
#include <thread>

#include <unistd.h>

#include "log_book.hpp"

#include <doctest/doctest.h>

namespace log_tests {

using namespace distgrad;

namespace {

using LogFields = std::vector<LogField>;

/// A record of 2026-11-28, 12:34:56.000789 UTC.
LogRecord log_record(std::string_view text, LogFields const& fields) {
  using namespace std::chrono;
  auto const at =
      sys_days(year(2026) / 11 / 28) + hours(12) + minutes(34) + seconds(56) + nanoseconds(789'123);
  return {LogLevel::warning, at, "ps0", "rpc", text, fields};
}

std::string written_to(std::FILE* file) {
  std::string text(std::size_t(std::ftell(file)), '\0');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

/// What `write` makes the process write to standard error.
template <class Write>
std::string stderr_of(Write write) {
  std::fflush(stderr);
  auto* const file = std::tmpfile();
  int const before = ::dup(2);
  ::dup2(::fileno(file), 2);
  write();
  std::fflush(stderr);
  ::dup2(before, 2);
  ::close(before);
  std::fseek(file, 0, SEEK_END);
  auto text = written_to(file);
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("a record as text says what happened, and then what is particular about it") {
  CHECK(log_text(log_record("a peer left", {})) == "distgrad [ps0] warning: rpc: a peer left");
  LogFields const fields{{"peer", "trainer"}, {"call", std::uint64_t(7)}, {"kind", "0x41"}};
  CHECK(log_text(log_record("a function failed", fields)) ==
        "distgrad [ps0] warning: rpc: a function failed: peer=trainer call=7 kind=0x41");
}

TEST_CASE("whatever a field is, a record as text stays one line that can be taken apart") {
  LogFields const fields{{"reason", "two words"}, {"a", ""},       {"b", "x=1"},
                         {"c", "say \"no\""},     {"d", "1\n2\\"}, {"e", "caf\xc3\xa9 \xff"}};
  CHECK(log_text(log_record("it", fields)) ==
        R"(distgrad [ps0] warning: rpc: it: reason="two words" a="" b="x=1" )"
        R"(c="say \"no\"" d="1\u000a2\\" e="caf)"
        "\xc3\xa9 \xef\xbf\xbd\"");
}

TEST_CASE("a record as JSON has all of it, with time in UTC and numbers as numbers") {
  LogFields const fields{{"peer", "trainer"},
                         {"call", std::uint64_t(18446744073709551615u)},
                         {"reason", "a \"\\\n\x01 \xff"}};
  CHECK(log_json(log_record("a function failed", fields)) ==
        R"({"time":"2026-11-28T12:34:56.000789Z","level":"warning","worker":"ps0",)"
        R"("component":"rpc","text":"a function failed","fields":{"peer":"trainer",)"
        R"("call":18446744073709551615,"reason":"a \"\\\u000a\u0001 )"
        "\xef\xbf\xbd\"}}");
  CHECK(log_json(log_record("a peer left", {})).ends_with(R"("fields":{}})"));
}

TEST_CASE("a time before 1970 is written like any") {
  auto record = log_record("it", {});
  record.time = std::chrono::system_clock::time_point(std::chrono::nanoseconds(-1));
  CHECK(log_json(record).find("1969-12-31T23:59:59.999999Z") != std::string::npos);
}

TEST_CASE("the default sink writes lines of text to standard error") {
  auto const text = stderr_of([] {
    Log const log(log_to_stderr, LogLevel::warning, "ps0");
    log.write(LogLevel::info, "rpc", "a peer left", {{"peer", "w1"}});
    log.write(LogLevel::warning, "rpc", "a peer was lost", {{"peer", "w1"}});
    log.write(LogLevel::error, "engine", "no trace was written");
  });
  CHECK(text ==
        "distgrad [ps0] warning: rpc: a peer was lost: peer=w1\n"
        "distgrad [ps0] error: engine: no trace was written\n");
}

TEST_CASE("a file gets whole lines of JSON, from whatever threads") {
  auto* const file = std::tmpfile();
  REQUIRE(file);
  Log const log(log_json_to(file), LogLevel::info, "ps0");
  std::string const filler(5000, 'x');  // more than a file's buffer has room for
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 50; ++n) {
        log.write(LogLevel::info, "rpc", "it", {{"thread", i}, {"filler", filler}});
      }
    });
  }
  for (auto& thread : threads) thread.join();
  auto const text = written_to(file);
  std::fclose(file);
  std::array<int, 4> lines{};
  for (std::size_t at = 0; at < text.size();) {
    auto const end = text.find('\n', at);
    REQUIRE(end != std::string::npos);
    auto const line = text.substr(at, end - at);
    auto const number = line.find("\"thread\":");
    REQUIRE(line.starts_with("{\"time\":"));
    REQUIRE(number != std::string::npos);
    CHECK(line.ends_with(",\"filler\":\"" + filler + "\"}}"));
    ++lines[std::size_t(line[number + 9] - '0')];
    at = end + 1;
  }
  CHECK((lines == std::array{50, 50, 50, 50}));
}

TEST_CASE("a line of the log is in the file at once") {
  auto* const file = std::tmpfile();
  REQUIRE(file);
  log_json_to(file)(log_record("it", {}));
  CHECK(::lseek(::fileno(file), 0, SEEK_END) == off_t(log_json(log_record("it", {})).size() + 1));
  std::fclose(file);
}

TEST_CASE("records below the least level are not made") {
  for (auto least : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error}) {
    log_book::LogBook some;
    Log const log(some.sink(), least, "ps0");
    std::size_t wanted = 0;
    for (auto level : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error}) {
      CHECK(log.wants(level) == (level >= least));
      wanted += level >= least;
      log.write(level, "rpc", to_string(level));
    }
    REQUIRE(some.all().size() == wanted);
    CHECK(some.all()[0].text == to_string(least));
  }
}

TEST_CASE("a sink gets who writes, when, where and what") {
  log_book::LogBook book;
  Log const log(book.sink(), LogLevel::debug, "ps0");
  auto const before = std::chrono::system_clock::now();
  log.write(LogLevel::info, "engine", "it",
            {{"rank", std::uint64_t(3)}, {"name", std::string("x")}});
  auto const entries = book.all();
  REQUIRE(entries.size() == 1);
  CHECK((entries[0].level == LogLevel::info));
  CHECK(entries[0].worker == "ps0");
  CHECK(entries[0].component == "engine");
  CHECK(entries[0].text == "it");
  CHECK((entries[0].fields == log_book::Fields{{"rank", "3"}, {"name", "x"}}));
  CHECK(entries[0].time >= before);
  CHECK(entries[0].time <= std::chrono::system_clock::now());
}

TEST_CASE("a log without a sink wants nothing, and a sink that throws loses its record alone") {
  CHECK_FALSE(Log().wants(LogLevel::error));
  Log().write(LogLevel::error, "rpc", "it");
  CHECK_FALSE(Log({}, LogLevel::debug, "ps0").wants(LogLevel::error));
  int calls = 0;
  Log const log(
      [&](LogRecord const&) {
        ++calls;
        throw std::runtime_error("the disk is full");
      },
      LogLevel::debug, "ps0");
  log.write(LogLevel::error, "rpc", "it");
  log.write(LogLevel::error, "rpc", "it");
  CHECK(calls == 2);
}

}  // namespace log_tests
