#pragma once
#include <cerrno>
#include <cstdlib>

#include <distgrad/core/error.hpp>
#include <distgrad/engine/trace_file.hpp>

namespace distgrad {
namespace detail {

[[noreturn]] inline void throw_trace_error(std::string const& path) {
  auto const why = boost::system::error_code(errno, boost::system::generic_category()).message();
  throw Error(errc::invalid_argument,
              "the trace that DISTGRAD_TRACE asks for cannot be written to '" + path + "': " + why);
}

}  // namespace detail

DISTGRAD_DECL TraceFile TraceFile::from_environment(WorkerId rank) {
  TraceFile trace;
  char const* const path = std::getenv("DISTGRAD_TRACE");
  if (!path || !*path) return trace;
  trace.path_ = path_of(path, rank);
  trace.file_.reset(std::fopen(trace.path_.c_str(), "w"));
  if (!trace.file_) detail::throw_trace_error(trace.path_);
  return trace;
}

DISTGRAD_DECL std::string TraceFile::path_of(std::string_view path, WorkerId rank) {
  auto const name = path.find_last_of('/') + 1;  // 0 without a folder
  auto const dot = path.find_last_of('.');
  auto const end = dot == std::string_view::npos || dot <= name ? path.size() : dot;
  return std::string(path.substr(0, end)) + "." + to_string(rank) + std::string(path.substr(end));
}

DISTGRAD_DECL void TraceFile::write(std::string_view text) {
  if (!file_) return;
  bool const is_written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  if (std::fclose(file_.release()) != 0 || !is_written) detail::throw_trace_error(path_);
}

}  // namespace distgrad
