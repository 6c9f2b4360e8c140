// What a benchmark says: one JSON line per row on stdout, a line for people on stderr, and at the
// end which targets were met.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

inline std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, std::abs(value) >= 1000 ? "%.0f" : "%.4g", value);
  return text;
}

/// One row's JSON object. Numbers that are not known (NaN) are left out.
class JsonLine {
 public:
  explicit JsonLine(std::string_view bench) { add("bench", bench); }

  JsonLine& add(std::string_view name, std::string_view text) {
    return add_raw(name, '"' + std::string(text) + '"');
  }
  JsonLine& add(std::string_view name, double value) {
    return std::isnan(value) ? *this : add_raw(name, number(value));
  }
  /// @param json a value that is JSON already.
  JsonLine& add_raw(std::string_view name, std::string_view json) {
    add_fields('"' + std::string(name) + "\":" + std::string(json));
    return *this;
  }
  /// @param fields any number of `"name":value`, joined with commas.
  void add_fields(std::string_view fields) {
    text_ += text_.empty() ? "" : ",";
    text_ += fields;
  }

  void print() const {
    std::printf("{%s}\n", text_.c_str());
    std::fflush(stdout);
  }

 private:
  std::string text_;
};

/// What was wanted and what came of it.
class Targets {
 public:
  /// @return what to append to the row's line for people.
  std::string check(std::string const& what, double value, double limit) {
    bool const met = value <= limit;
    std::string const verdict = met ? "met" : "MISSED";
    lines_.push_back("  " + what + ": " + number(value) + ", target <= " + number(limit) + ": " +
                     verdict);
    return " (target <= " + number(limit) + ": " + verdict + ")";
  }

  void print() const {
    if (!lines_.empty()) std::fprintf(stderr, "\ntargets\n");
    for (auto const& line : lines_) std::fprintf(stderr, "%s\n", line.c_str());
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace bench
