#pragma once
#include <algorithm>

#include <distgrad/observe/json_writer.hpp>
#include <distgrad/observe/log.hpp>

namespace distgrad {
namespace detail {

/// @source RFC 3339, section 5.6.
inline std::string utc_text(std::chrono::system_clock::time_point at) {
  using namespace std::chrono;
  auto const time = floor<microseconds>(at);
  auto const midnight = floor<days>(time);
  year_month_day const date(midnight);
  hh_mm_ss const since(time - midnight);
  char text[96];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d.%06dZ", int(date.year()),
                unsigned(date.month()), unsigned(date.day()), int(since.hours().count()),
                int(since.minutes().count()), int(since.seconds().count()),
                int(since.subseconds().count()));
  return text;
}

inline bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return c > ' ' && c <= '~' && c != '"' && c != '\\' && c != '=';
  });
}

inline std::string log_value(LogField const& field) {
  if (auto const* number = std::get_if<std::uint64_t>(&field.value)) return std::to_string(*number);
  auto const text = std::get<std::string_view>(field.value);
  if (is_word(text)) return std::string(text);
  JsonWriter quoted;
  quoted.value(text);
  return quoted.take();
}

inline void write_line(std::FILE* file, std::string line) {
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), file);  // the file's own lock keeps it whole
}

}  // namespace detail

DISTGRAD_DECL std::string log_text(LogRecord const& record) {
  std::string line("distgrad [");
  line.append(record.worker).append("] ").append(to_string(record.level)).append(": ");
  line.append(record.component).append(": ").append(record.text);
  char const* separator = ": ";
  for (auto const& field : record.fields) {
    line.append(std::exchange(separator, " ")).append(field.key).append("=");
    line.append(detail::log_value(field));
  }
  return line;
}

DISTGRAD_DECL std::string log_json(LogRecord const& record) {
  JsonWriter json;
  json.object([&] {
    json.member("time", detail::utc_text(record.time));
    json.member("level", to_string(record.level));
    json.member("worker", record.worker);
    json.member("component", record.component);
    json.member("text", record.text);
    json.object("fields", [&] {
      for (auto const& field : record.fields) {
        std::visit([&](auto const& value) { json.member(field.key, value); }, field.value);
      }
    });
  });
  return json.take();
}

DISTGRAD_DECL void log_to_stderr(LogRecord const& record) {
  detail::write_line(stderr, log_text(record));
}

DISTGRAD_DECL LogSink log_json_to(std::FILE* file) {
  return [file](LogRecord const& record) {
    detail::write_line(file, log_json(record));
    std::fflush(file);  // the last lines before a crash are those one wants
  };
}

DISTGRAD_DECL void Log::write(LogLevel level, std::string_view component, std::string_view text,
                              std::initializer_list<LogField> fields) const noexcept {
  if (!wants(level)) return;
  try {
    auto const now = std::chrono::system_clock::now();
    sink_({level, now, worker_, component, text, {fields.begin(), fields.size()}});
  } catch (...) {
    // A sink that throws loses its record; there is nobody else to tell.
  }
}

}  // namespace distgrad
