#pragma once
#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <distgrad/observe/metric.hpp>

namespace distgrad::detail {

using Label = std::pair<std::string_view, std::string_view>;
using Labels = std::span<Label const>;

// Writes families of samples, each under its HELP and TYPE lines. Every sample carries the label
// `worker`, so that those of several workers can be told apart after they were joined.
class PrometheusWriter {
 public:
  explicit PrometheusWriter(std::string_view worker) : worker_(worker) {}

  // All samples that follow, up to the next family, have this name. `name` without `distgrad_`.
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = "distgrad_" + std::string(name);
    text_ += "# HELP " + name_ + " " + std::string(help) + "\n# TYPE " + name_ + " " +
             std::string(type) + "\n";
  }
  void sample(Labels labels, std::uint64_t value) { line({}, labels, {}, std::to_string(value)); }
  void sample(Labels labels, MetricHistogram::Snapshot const& value) {
    std::uint64_t up_to = 0;
    for (std::size_t i = 0; i < value.buckets.size(); ++i) {
      up_to += value.buckets[i];
      line("_bucket", labels,
           i < MetricHistogram::bounds.size() ? seconds(MetricHistogram::bounds[i]) : "+Inf",
           std::to_string(up_to));
    }
    line("_sum", labels, {}, seconds(value.sum));
    line("_count", labels, {}, std::to_string(value.count));
  }

  std::string take() { return std::move(text_); }

  // A label's value between its quotes: three characters are escaped, and what is not UTF-8 would
  // make the whole text unreadable.
  static std::string escape(std::string_view value);

 private:
  static std::string seconds(std::chrono::nanoseconds value) {
    char digits[64];
    auto const end =
        std::to_chars(digits, digits + sizeof digits, std::chrono::duration<double>(value).count(),
                      std::chars_format::fixed);
    return {digits, end.ptr};
  }
  void line(std::string_view suffix, Labels labels, std::string_view le, std::string_view value) {
    text_.append(name_).append(suffix).append("{worker=\"").append(escape(worker_)).append("\"");
    for (auto const& [name, content] : labels) {
      text_.append(",").append(name).append("=\"").append(escape(content)).append("\"");
    }
    if (!le.empty()) text_.append(",le=\"").append(le).append("\"");
    text_.append("} ").append(value).append("\n");
  }

  std::string worker_, name_, text_;
};

}  // namespace distgrad::detail
