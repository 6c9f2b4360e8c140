#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include <distgrad/config.hpp>
#include <distgrad/core/ids.hpp>

namespace distgrad {

/// The file that DISTGRAD_TRACE asks an engine to write when it ends. Open from the beginning: that
/// it cannot be written shall be known before a long job, not after it.
/// @threads one thread at a time.
class TraceFile {
 public:
  /// How many events an engine records that is traced because of the variable alone.
  static constexpr std::size_t default_events = 200'000;

  /// None; nothing is written.
  TraceFile() = default;
  /// That of the worker with this rank; none without the variable.
  /// @throws Error `invalid_argument` if the file cannot be opened.
  static TraceFile from_environment(WorkerId rank);
  /// `path` with the rank before the ending, so that workers do not write over one another:
  /// "trace.json" becomes "trace.2.json".
  static std::string path_of(std::string_view path, WorkerId rank);

  explicit operator bool() const { return bool(file_); }
  std::string const& path() const { return path_; }
  /// Once. @throws Error `internal` when the disk is full, and so on.
  void write(std::string_view text);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/trace_file.ipp>
#endif
