#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <c10/core/GradMode.h>

#include <distgrad/tensor/tensor_meta.hpp>

// Tensors of every element type and layout, for tests of whatever moves tensors.

namespace distgrad::testing {

/// Every element type of this libtorch that is not quantized.
inline std::vector<at::ScalarType> all_dtypes() {
  std::vector<at::ScalarType> types;
  for (int code = 0; code < static_cast<int>(at::ScalarType::NumOptions); ++code) {
    auto const type = static_cast<at::ScalarType>(code);
    if (type == at::ScalarType::Undefined || distgrad::detail::is_quantized_type(type)) continue;
    types.push_back(type);
  }
  return types;
}

/// Fills the whole storage of `tensor` with bytes that differ from place to place.
inline at::Tensor fill_bytes(at::Tensor tensor) {
  auto const size = tensor.storage().nbytes();
  auto* const bytes = static_cast<unsigned char*>(tensor.data_ptr());
  for (std::size_t i = 0; i < size; ++i) {
    auto const value = static_cast<unsigned char>(i * 37 + i / 251 + 11);
    bytes[i] = tensor.scalar_type() == at::ScalarType::Bool ? value & 1 : value;
  }
  return tensor;
}

inline at::Tensor strided(at::ScalarType dtype, std::vector<std::int64_t> const& sizes,
                          std::vector<std::int64_t> const& strides) {
  return fill_bytes(at::empty_strided(sizes, strides, at::TensorOptions(dtype)));
}
inline at::Tensor dense(at::ScalarType dtype, std::vector<std::int64_t> const& sizes) {
  auto const strides = dense_strides(sizes);
  return strided(dtype, sizes, {strides.begin(), strides.end()});
}

/// A layout by name, and how to make a tensor of it.
struct Layout {
  std::string name;
  std::function<at::Tensor(at::ScalarType)> make;
  /// Whether its strides arrive unchanged; otherwise its elements arrive compact.
  bool is_dense = true;
};

/// Layouts for every element type.
inline std::vector<Layout> all_layouts() {
  using at::ScalarType;
  return {
      {"no dimension", [](ScalarType t) { return dense(t, {}); }},
      {"matrix",
       [](ScalarType t) {
         return dense(t, {3, 4});
       }},
      {"empty vector", [](ScalarType t) { return dense(t, {0}); }},
      {"empty with a size",
       [](ScalarType t) {
         return dense(t, {0, 3});
       }},
      {"empty between sizes",
       [](ScalarType t) {
         return dense(t, {2, 0, 5});
       }},
      {"transposed",
       [](ScalarType t) {
         return dense(t, {3, 4}).t();
       }},
      {"channels last",
       [](ScalarType t) {
         return strided(t, {2, 3, 4, 5}, {60, 1, 15, 3});
       }},
      {"channels last 3d",
       [](ScalarType t) {
         return strided(t, {2, 4, 4, 4, 4}, {256, 1, 64, 16, 4});
       }},
      {"permuted",
       [](ScalarType t) {
         return dense(t, {2, 3, 4, 5}).permute({3, 0, 2, 1});
       }},
      {"one element, odd stride", [](ScalarType t) { return strided(t, {1}, {8}); }},
      {"odd strides where the size is one",
       [](ScalarType t) {
         return strided(t, {1, 5, 1}, {77, 1, 3});
       }},
      {"row of a big matrix",
       [](ScalarType t) {
         return dense(t, {64, 64}).select(0, 2);
       }},
      {"first rows of a big matrix",
       [](ScalarType t) {
         return dense(t, {64, 64}).narrow(0, 0, 38);
       }},
      {"64 dimensions",
       [](ScalarType t) { return dense(t, std::vector<std::int64_t>(max_tensor_dimensions, 1)); }},
  };
}

/// Layouts that must be copied to be sent; libtorch copies the ordinary element types only.
inline std::vector<Layout> gapped_layouts() {
  using at::ScalarType;
  return {
      {"column of a matrix",
       [](ScalarType t) {
         return dense(t, {9, 7}).select(1, 3);
       },
       false},
      {"every second row",
       [](ScalarType t) {
         return dense(t, {9, 7}).slice(0, 0, 9, 2);
       },
       false},
      {"block of a transposed matrix",
       [](ScalarType t) {
         return dense(t, {9, 7}).t().narrow(0, 1, 3).narrow(1, 2, 4);
       },
       false},
      {"expanded", [](ScalarType t) { return dense(t, {1}).expand({1000}); }, false},
      {"expanded in the middle",
       [](ScalarType t) {
         return dense(t, {3, 1, 2}).expand({3, 4, 2});
       },
       false},
      {"overlapping windows",
       [](ScalarType t) {
         return dense(t, {10}).as_strided({8, 3}, {1, 1});
       },
       false},
  };
}

/// Element types with kernels for copying in every supported libtorch.
inline std::vector<at::ScalarType> copyable_dtypes() {
  using enum at::ScalarType;
  return {Byte,   Char,        Short,        Int,           Long, Half,    Float,
          Double, ComplexHalf, ComplexFloat, ComplexDouble, Bool, BFloat16};
}

/// A sparse matrix `[rows, columns, dense...]` with `nnz` entries.
/// @param coalesced with entries in order and each once; otherwise the first is there twice.
inline at::Tensor sparse(at::ScalarType dtype, std::int64_t nnz, bool coalesced,
                         std::vector<std::int64_t> const& dense_sizes = {}) {
  auto indices = dense(at::ScalarType::Long, {2, nnz});
  auto* const index = static_cast<std::int64_t*>(indices.data_ptr());
  for (std::int64_t i = 0; i < nnz; ++i) {
    auto const place = coalesced || i + 1 < nnz ? i : 0;
    index[i] = place;
    index[nnz + i] = place % 5;
  }
  std::vector<std::int64_t> value_sizes{nnz}, sizes{std::max<std::int64_t>(nnz, 1), 5};
  value_sizes.insert(value_sizes.end(), dense_sizes.begin(), dense_sizes.end());
  sizes.insert(sizes.end(), dense_sizes.begin(), dense_sizes.end());
  auto const tensor = at::sparse_coo_tensor(indices, dense(dtype, value_sizes), sizes);
  return tensor._coalesced_(coalesced);
}

/// The elements' bytes in row-major order, whatever the strides are. Lazy conjugates and
/// negatives are resolved; other element types need no kernel of libtorch.
inline std::vector<std::byte> element_bytes(at::Tensor const& tensor) {
  c10::AutoGradMode const no_recording(false);
  auto const plain = tensor.resolve_conj().resolve_neg();
  auto const size = c10::elementSize(plain.scalar_type());
  std::vector<std::byte> bytes(plain.numel() * size);
  std::vector<std::int64_t> place(plain.dim(), 0);
  for (std::int64_t n = 0; n < plain.numel(); ++n) {
    auto const offset =
        std::inner_product(place.begin(), place.end(), plain.strides().begin(), std::int64_t{0});
    std::memcpy(bytes.data() + n * size,
                static_cast<std::byte const*>(plain.data_ptr()) + offset * size, size);
    for (auto d = plain.dim(); d-- > 0 && ++place[d] == plain.size(d);) place[d] = 0;
  }
  return bytes;
}

/// Whether both have the same type, sizes and bits; strides are not compared.
inline bool equal_bits(at::Tensor const& a, at::Tensor const& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.scalar_type() != b.scalar_type() || a.layout() != b.layout() || a.sizes() != b.sizes()) {
    return false;
  }
  if (a.layout() == at::kSparse) {
    return a.is_coalesced() == b.is_coalesced() && equal_bits(a._indices(), b._indices()) &&
           equal_bits(a._values(), b._values());
  }
  return element_bytes(a) == element_bytes(b);
}

/// Whether one number is within `tolerance`, relative, of another. Below the smallest normal number
/// the bound stays as it is there; above the largest one rounding may make it infinite.
inline bool is_close(double number, double sent, double tolerance, at::ScalarType type) {
  bool const half = type == at::kHalf, wide = type == at::kDouble;
  double const smallest = half ? 6.1e-5 : wide ? 2.3e-308 : 1.17549435e-38;
  double const largest = half ? 65504 : wide ? 1.7e308 : 3.4e38;
  if (number == sent || (std::isnan(number) && std::isnan(sent))) return true;
  if (std::isinf(number)) {
    return std::signbit(number) == std::signbit(sent) &&
           std::abs(sent) >= largest * (1 - 2 * tolerance);
  }
  return std::abs(number - sent) <= tolerance * std::max(std::abs(sent), smallest);
}

/// As `equal_bits`, but elements of a real floating-point type may be off by `tolerance`, relative.
/// The indices of sparse tensors may not.
inline bool equal_within(at::Tensor const& a, at::Tensor const& sent, double tolerance) {
  if (tolerance == 0 || !a.defined() || !sent.defined()) return equal_bits(a, sent);
  if (a.scalar_type() != sent.scalar_type() || a.layout() != sent.layout() ||
      a.sizes() != sent.sizes()) {
    return false;
  }
  if (sent.layout() == at::kSparse) {
    return a.is_coalesced() == sent.is_coalesced() && equal_bits(a._indices(), sent._indices()) &&
           equal_within(a._values(), sent._values(), tolerance);
  }
  c10::AutoGradMode const no_recording(false);
  auto const numbers = a.to(at::kDouble).contiguous(), wanted = sent.to(at::kDouble).contiguous();
  auto const *number = numbers.data_ptr<double>(), *want = wanted.data_ptr<double>();
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    if (!is_close(number[i], want[i], tolerance, sent.scalar_type())) return false;
  }
  return true;
}

}  // namespace distgrad::testing
