#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <distgrad/config.hpp>

namespace distgrad {

enum class LogLevel { debug, info, warning, error };

/// "debug", "info", "warning", "error".
constexpr std::string_view to_string(LogLevel level) {
  constexpr std::string_view names[] = {"debug", "info", "warning", "error"};
  return names[static_cast<int>(level)];
}

/// What is particular about one record: which peer, which function, which error. A key means the
/// same in every record; docs/observing.md lists them.
struct LogField {
  std::string_view key;
  std::variant<std::string_view, std::uint64_t> value;
};

/// Something a person may want to know that no caller can be told.
struct LogRecord {
  LogLevel level;
  /// When it was written, by the wall clock of the worker's host.
  std::chrono::system_clock::time_point time;
  /// Name of the worker that writes.
  std::string_view worker;
  /// The part of the library that writes: "rpc", "autograd" or "engine".
  std::string_view component;
  /// What happened, in a sentence that never varies: a sink may count or select by it.
  std::string_view text;
  std::span<LogField const> fields;
};

/// Receives the log of one engine. What a record refers to is there only during the call.
/// @threads called on any thread, also on the I/O thread, and on several at once: it must be quick.
/// One that throws loses its record.
using LogSink = std::function<void(LogRecord const&)>;

/// A record as a line of text without the line's end:
///
///     distgrad [ps0] warning: rpc: a peer was lost: peer=trainer error=peer_lost
///
/// Values with other characters than those of a word are in quotes, and escaped as in JSON:
/// whatever a peer sends, a record is one line.
DISTGRAD_DECL std::string log_text(LogRecord const& record);

/// A record as a JSON object on one line without the line's end: `time` (RFC 3339, UTC, with
/// microseconds), `level`, `worker`, `component`, `text`, and an object `fields`. Always UTF-8,
/// whatever the fields are: see `JsonWriter`.
DISTGRAD_DECL std::string log_json(LogRecord const& record);

/// A sink: each record as text, one line on standard error. @threads safe.
DISTGRAD_DECL void log_to_stderr(LogRecord const& record);

/// A sink: each record as JSON, one line each. The file is flushed after each of them.
/// @param file has to stay open as long as an engine or one of its futures is there. Several
/// engines may write to the same.
/// @threads safe: lines are never mixed.
DISTGRAD_DECL LogSink log_json_to(std::FILE* file);

/// The log of one engine: where all its rooms write, and what decides whether a record is made.
/// @threads safe: shared object.
class Log {
 public:
  /// Nobody reads it.
  Log() = default;
  /// @param least less important records are not made. @param worker who writes.
  Log(LogSink sink, LogLevel least, std::string worker)
      : sink_(std::move(sink)), least_(least), worker_(std::move(worker)) {}

  /// Whether a record of this level would be read; ask before preparing what only a record needs.
  bool wants(LogLevel level) const noexcept { return sink_ && level >= least_; }
  /// @cost a branch, unless the record is wanted.
  void write(LogLevel level, std::string_view component, std::string_view text,
             std::initializer_list<LogField> fields = {}) const noexcept;

 private:
  LogSink sink_;
  LogLevel least_ = LogLevel::error;
  std::string worker_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/observe/impl/log.ipp>
#endif
