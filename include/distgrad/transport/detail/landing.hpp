#pragma once
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <distgrad/core/buffer.hpp>

namespace distgrad::detail {

/// Cuts the buffers a sink returned to the announced lengths.
/// @return false when the sink refused: too few buffers, or one too short.
inline bool fit_landing(std::vector<Buffer>& buffers, std::span<std::uint64_t const> lengths) {
  if (buffers.size() < lengths.size()) return false;
  buffers.resize(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    auto& b = buffers[i];
    if (b.size_bytes() < lengths[i]) return false;
    b = Buffer(b.owner(), b.data(), static_cast<std::size_t>(lengths[i]));
  }
  return true;
}

inline std::vector<std::uint64_t> buffer_lengths(std::vector<Buffer> const& buffers) {
  std::vector<std::uint64_t> lengths(buffers.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = buffers[i].size_bytes();
  return lengths;
}

/// Copies each buffer's bytes into the landing buffer of the same index.
inline void copy_buffers(std::vector<Buffer> const& from, std::vector<Buffer> const& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i].size_bytes()) std::memcpy(to[i].data(), from[i].data(), from[i].size_bytes());
  }
}

}  // namespace distgrad::detail
