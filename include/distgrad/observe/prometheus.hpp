#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <distgrad/config.hpp>
#include <distgrad/observe/observer.hpp>

namespace distgrad {

/// A number that only the engine knows, at the moment it is read.
struct GaugeReading {
  std::string_view name;  ///< Without `distgrad_`.
  std::string_view help;
  std::uint64_t value = 0;
};

/// Everything `observer` counts, and `gauges`, as Prometheus reads it.
/// @source Prometheus text exposition format 0.0.4.
DISTGRAD_DECL std::string prometheus_text(Observer const& observer,
                                          std::span<GaugeReading const> gauges = {});

/// What an HTTP server says that text is.
inline constexpr std::string_view prometheus_content_type =
    "text/plain; version=0.0.4; charset=utf-8";

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/observe/impl/prometheus.ipp>
#endif
