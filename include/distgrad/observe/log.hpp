#pragma once
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

namespace distgrad {

enum class LogLevel { debug, info, warning, error };

/// Something a person may want to know that no caller can be told.
struct LogRecord {
  LogLevel level;
  /// Name of the worker that writes.
  std::string_view worker;
  std::string_view text;
};

/// Receives the log of one engine. Called on any thread, also on the I/O thread: it must be
/// quick and must not throw.
using LogSink = std::function<void(LogRecord const&)>;

/// Writes warnings and errors to standard error, one line each.
inline void log_to_stderr(LogRecord const& record) {
  if (record.level < LogLevel::warning) return;
  auto const line = "distgrad [" + std::string(record.worker) + "] " +
                    (record.level == LogLevel::error ? "error: " : "warning: ") +
                    std::string(record.text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace distgrad
