#pragma once
#include <algorithm>
#include <array>
#include <span>
#include <string>

#include <distgrad/core/error.hpp>
#include <distgrad/tensor/tensor_meta.hpp>

namespace distgrad {
namespace detail {

// The product of `sizes`; false when it exceeds an int64.
inline bool checked_numel(c10::IntArrayRef sizes, std::int64_t& numel) {
  // A zero anywhere makes the product zero, whatever the other sizes are; but libtorch multiplies
  // the others when it computes strides, so that they must not overflow either.
  std::int64_t product = 1;
  bool empty = false;
  for (auto const size : sizes) {
    if (size == 0) empty = true;
    if (size < 0 || __builtin_mul_overflow(product, std::max<std::int64_t>(size, 1), &product)) {
      return false;
    }
  }
  numel = empty ? 0 : product;
  return true;
}

inline at::ScalarType read_dtype(Reader& in) {
  auto const code = in.number<std::uint8_t>();
  auto const type = static_cast<at::ScalarType>(code);
  if (code >= static_cast<unsigned>(at::ScalarType::NumOptions) ||
      type == at::ScalarType::Undefined) {
    bad_tensor("has element type " + std::to_string(code) +
               ", which this worker's libtorch does not know; use the same libtorch everywhere");
  }
  if (is_quantized_type(type)) bad_tensor("is quantized, which is not supported");
  return type;
}

inline c10::Device read_device(Reader& in) {
  auto const type = in.number<std::int8_t>();
  auto const index = in.number<std::int8_t>();
  bool const known =
      type >= 0 && type < static_cast<int>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);
  bool const is_cpu = static_cast<c10::DeviceType>(type) == c10::DeviceType::CPU;
  if (!known || index < -1 || (is_cpu && index > 0)) bad_tensor("names an unknown device");
  return {static_cast<c10::DeviceType>(type), index};
}

inline at::DimVector read_dimensions(Reader& in, std::size_t count) {
  at::DimVector values(count);
  for (auto& value : values) {
    value = in.number<std::int64_t>();
    if (value < 0) bad_tensor("has a negative size or stride");
  }
  return values;
}

// Sizes, and checks that numel * element size fits an int64, so that payload_bytes() cannot
// overflow later.
inline at::DimVector read_sizes(Reader& in, at::ScalarType dtype) {
  auto const dimensions = in.number<std::uint8_t>();
  if (dimensions > max_tensor_dimensions) {
    bad_tensor("has " + std::to_string(dimensions) + " dimensions; 64 are allowed");
  }
  auto sizes = read_dimensions(in, dimensions);
  std::int64_t numel = 0, bytes = 0;
  auto const element_bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
  if (!checked_numel(sizes, numel) || __builtin_mul_overflow(numel, element_bytes, &bytes)) {
    bad_tensor("has sizes whose product overflows");
  }
  return sizes;
}

// Whether the parts of a sparse tensor have the shapes and types that `meta` announces.
inline bool parts_fit(TensorMeta const& meta) {
  auto const& indices = meta.parts[0];
  auto const& values = meta.parts[1];
  for (auto const& part : meta.parts) {
    if (part.kind != TensorKind::strided || part.requires_grad || part.device != meta.device) {
      return false;
    }
  }
  if (indices.dtype != at::ScalarType::Long || indices.sizes.size() != 2) return false;
  if (values.dtype != meta.dtype || values.sizes.empty()) return false;
  auto const sparse_dimensions = static_cast<std::uint64_t>(indices.sizes[0]);
  return sparse_dimensions <= meta.sizes.size() && indices.sizes[1] == values.sizes[0] &&
         std::equal(values.sizes.begin() + 1, values.sizes.end(),
                    meta.sizes.begin() + sparse_dimensions, meta.sizes.end());
}

inline TensorMeta read_tensor_meta(Reader& in, bool is_part) {
  TensorMeta meta;
  auto const kind = in.number<std::uint8_t>();
  if (!in.ok() || kind > static_cast<unsigned>(TensorKind::sparse_coo)) {
    bad_tensor("is of unknown kind " + std::to_string(kind) + ", or its description is cut off");
  }
  meta.kind = static_cast<TensorKind>(kind);
  // A part is never sparse itself: this bounds the recursion.
  if (is_part && meta.kind != TensorKind::strided) bad_tensor("has a part that is not strided");
  if (meta.kind == TensorKind::undefined) return meta;

  auto const flags = in.number<std::uint8_t>();
  if (flags >= 2 * strides_flag) bad_tensor("has unknown flags");
  meta.requires_grad = flags & requires_grad_flag;
  meta.is_coalesced = flags & coalesced_flag;
  meta.dtype = read_dtype(in);
  if (meta.requires_grad && !c10::isFloatingType(meta.dtype) && !c10::isComplexType(meta.dtype)) {
    bad_tensor("of integer type claims to require gradients");
  }
  meta.device = read_device(in);
  meta.sizes = read_sizes(in, meta.dtype);
  if (meta.kind == TensorKind::sparse_coo) {
    meta.parts.push_back(read_tensor_meta(in, true));
    meta.parts.push_back(read_tensor_meta(in, true));
    if (!parts_fit(meta)) bad_tensor("is sparse with parts that do not fit together");
  } else if (flags & strides_flag) {
    meta.strides = read_dimensions(in, meta.sizes.size());
    if (!has_dense_strides(meta.sizes, meta.strides)) bad_tensor("has strides that are not dense");
  } else {
    meta.strides = dense_strides(meta.sizes);
  }
  if (!in.ok()) bad_tensor("has a description that is cut off");
  return meta;
}

}  // namespace detail

DISTGRAD_DECL std::uint64_t TensorMeta::payload_bytes() const {
  if (kind != TensorKind::strided) return 0;
  std::int64_t numel = 0;
  detail::checked_numel(sizes, numel);
  return static_cast<std::uint64_t>(numel) * c10::elementSize(dtype);
}

DISTGRAD_DECL std::size_t TensorMeta::buffer_count() const {
  if (kind == TensorKind::strided) return payload_bytes() > 0 ? 1 : 0;
  std::size_t count = 0;
  for (auto const& part : parts) count += part.buffer_count();
  return count;
}

DISTGRAD_DECL at::DimVector dense_strides(c10::IntArrayRef sizes) {
  at::DimVector strides(sizes.size());
  std::uint64_t next = 1;  // unsigned: the last product is not used, and may overflow
  for (auto i = sizes.size(); i-- > 0;) {
    strides[i] = static_cast<std::int64_t>(next);
    next *= static_cast<std::uint64_t>(std::max<std::int64_t>(sizes[i], 1));
  }
  return strides;
}

DISTGRAD_DECL bool has_dense_strides(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (sizes.size() != strides.size() || sizes.size() > max_tensor_dimensions) return false;
  std::array<std::uint8_t, max_tensor_dimensions> order;
  std::size_t used = 0;
  bool empty = false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] < 0) return false;
    if (sizes[i] == 0) empty = true;
    if (sizes[i] > 1) order[used++] = static_cast<std::uint8_t>(i);
  }
  if (empty) return true;
  std::sort(order.begin(), order.begin() + used,
            [&](auto a, auto b) { return strides[a] < strides[b]; });
  std::int64_t expected = 1;
  for (std::size_t k = 0; k < used; ++k) {
    if (strides[order[k]] != expected) return false;
    if (__builtin_mul_overflow(expected, sizes[order[k]], &expected)) return false;
  }
  return true;
}

DISTGRAD_DECL void write_tensor_meta(Writer& out, TensorMeta const& meta) {
  out.number(static_cast<std::uint8_t>(meta.kind));
  if (meta.kind == TensorKind::undefined) return;
  bool const contiguous =
      meta.kind != TensorKind::strided || meta.strides == dense_strides(meta.sizes);
  out.number(static_cast<std::uint8_t>((meta.requires_grad ? detail::requires_grad_flag : 0) |
                                       (meta.is_coalesced ? detail::coalesced_flag : 0) |
                                       (contiguous ? 0 : detail::strides_flag)));
  out.number(static_cast<std::uint8_t>(meta.dtype));
  out.number(static_cast<std::int8_t>(meta.device.type()));
  out.number(static_cast<std::int8_t>(meta.device.index()));
  out.number(static_cast<std::uint8_t>(meta.sizes.size()));
  out.raw(std::as_bytes(std::span(meta.sizes.data(), meta.sizes.size())));
  if (!contiguous) out.raw(std::as_bytes(std::span(meta.strides.data(), meta.strides.size())));
  for (auto const& part : meta.parts) write_tensor_meta(out, part);
}

DISTGRAD_DECL TensorMeta read_tensor_meta(Reader& in) {
  return detail::read_tensor_meta(in, false);
}

}  // namespace distgrad
