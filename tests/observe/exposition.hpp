#pragma once
// A strict reader of Prometheus' text exposition format 0.0.4, for tests: takes nothing but what
// the format allows, and of that only what a well-behaved writer makes.

#include <charconv>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include <distgrad/observe/detail/utf8.hpp>

namespace exposition {

struct Text {
  /// What is wrong, one line each; empty if nothing is.
  std::string problems;
  /// By name and labels, exactly as they are written.
  std::map<std::string, double> samples;

  /// -1 if there is no such sample.
  double value(std::string const& sample) const {
    auto const at = samples.find(sample);
    return at == samples.end() ? -1 : at->second;
  }
  /// The sum of all samples of this name.
  double sum(std::string const& name) const {
    double sum = 0;
    for (auto const& [sample, value] : samples) {
      if (sample == name || sample.starts_with(name + "{")) sum += value;
    }
    return sum;
  }
};

class Parser {
 public:
  explicit Parser(std::string const& text) : text_(text) {}

  Text parse() {
    if (!text_.empty() && text_.back() != '\n') problem("the last line does not end", "");
    for (std::string_view rest = text_; !rest.empty();) {
      auto const size = distgrad::detail::utf8_character_bytes(rest);
      if (size == 0) problem("not UTF-8", "");
      rest.remove_prefix(size == 0 ? rest.size() : size);
    }
    std::istringstream lines(text_);
    for (std::string line; std::getline(lines, line);) read(line);
    end_histogram();
    return std::move(result_);
  }

 private:
  void problem(std::string const& what, std::string const& line) {
    result_.problems += what + ": " + line + "\n";
  }
  void read(std::string const& line) {
    std::smatch m;
    static std::regex const help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)");
    static std::regex const type("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram)");
    static std::regex const sample("([a-zA-Z_:][a-zA-Z0-9_:]*)(\\{.*\\})? ([^ ]+)");
    if (std::regex_match(line, m, help)) {
      helped_ = m[1];
    } else if (std::regex_match(line, m, type)) {
      begin_family(m[1], m[2], line);
    } else if (std::regex_match(line, m, sample)) {
      add(m[1], m[2], m[3], line);
    } else {
      problem("no line of the format", line);
    }
  }
  void begin_family(std::string const& name, std::string const& type, std::string const& line) {
    end_histogram();
    family_ = name;
    type_ = type;
    if (helped_ != name) problem("type without its help", line);
    if (!families_.insert(name).second) problem("the family comes twice", line);
    if ((type == "counter") != name.ends_with("_total")) problem("a counter ends in _total", line);
  }
  void add(std::string const& name, std::string const& labels, std::string const& number,
           std::string const& line) {
    bool const is_part =
        type_ == "histogram" &&
        (name == family_ + "_bucket" || name == family_ + "_sum" || name == family_ + "_count");
    if (!is_part && (name != family_ || type_ == "histogram")) problem("of no family", line);
    double value = 0;
    auto const end = std::from_chars(number.data(), number.data() + number.size(), value);
    if (end.ec != std::errc() || end.ptr != number.data() + number.size()) problem("number", line);
    if (value < 0) problem("negative", line);
    std::string le;
    auto const others = check_labels(labels, le, line);
    if (!result_.samples.emplace(name + labels, value).second) problem("twice", line);
    if (name == family_ + "_bucket") {
      auto& bucket = histograms_[others];
      if (value < bucket.last) problem("buckets shrink", line);
      bucket.last = value;
      bucket.ended = le == "+Inf";
    } else if (name == family_ + "_count" && type_ == "histogram") {
      histograms_[others].count = value;
    }
  }
  /// Checks a whole {name="value",...}. @return it without `le`.
  std::string check_labels(std::string labels, std::string& le, std::string const& line) {
    static std::regex const one("([a-zA-Z_][a-zA-Z0-9_]*)=\"((?:[^\"\\\\]|\\\\[\\\\\"n])*)\"(,|$)");
    if (labels.empty()) return {};
    labels = labels.substr(1, labels.size() - 2);
    std::string others;
    std::set<std::string> names;
    std::smatch m;
    while (!labels.empty()) {
      if (!std::regex_search(labels, m, one, std::regex_constants::match_continuous)) {
        problem("labels", line);
        return {};
      }
      if (!names.insert(m[1]).second) problem("a label comes twice", line);
      if (m[1] == "le") {
        le = m[2];
      } else {
        others += m[0];
      }
      labels = m.suffix();
    }
    if (others.ends_with(',')) others.pop_back();
    return others;
  }
  void end_histogram() {
    for (auto const& [labels, histogram] : std::exchange(histograms_, {})) {
      if (!histogram.ended) problem("a histogram without its last bucket", family_ + labels);
      if (histogram.count != histogram.last) problem("count and last bucket differ", labels);
    }
  }

  struct Histogram {
    double last = 0, count = -1;
    bool ended = false;
  };

  std::string const text_;
  Text result_;
  std::string helped_, family_, type_;
  std::set<std::string> families_;
  std::map<std::string, Histogram> histograms_;
};

inline Text parse(std::string const& text) { return Parser(text).parse(); }

}  // namespace exposition
