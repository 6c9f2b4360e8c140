#pragma once
#include <cstddef>
#include <cstdint>

namespace distgrad {

/// How a tensor's elements are stored. The numbers are on the wire and never change.
enum class TensorKind : std::uint8_t {
  undefined = 0,   ///< `at::Tensor()`: no elements, no buffer.
  strided = 1,     ///< Dense in memory: one buffer, or none when it has no element.
  sparse_coo = 2,  ///< Two strided parts: indices, values.
};

/// Most dimensions a tensor may have.
inline constexpr std::size_t max_tensor_dimensions = 64;

namespace detail {
/// Bits of the flag byte in a tensor's description.
inline constexpr std::uint8_t requires_grad_flag = 1, coalesced_flag = 2, strides_flag = 4;
}  // namespace detail

}  // namespace distgrad
