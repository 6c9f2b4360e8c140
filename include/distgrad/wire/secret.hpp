#pragma once
#include <cstddef>
#include <string_view>

namespace distgrad {

/// Longest job secret, in bytes.
inline constexpr std::size_t max_job_secret_bytes = 1024;

/// Whether two secrets are equal, in a time that depends on the lengths only, so that answering
/// quickly tells a guesser nothing.
inline bool is_same_secret(std::string_view ours, std::string_view theirs) noexcept {
  unsigned char volatile difference = ours.size() == theirs.size() ? 0 : 1;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    auto const mine = ours.empty() ? '\0' : ours[i % ours.size()];
    difference = static_cast<unsigned char>(difference | (mine ^ theirs[i]));
  }
  return difference == 0;
}

}  // namespace distgrad
