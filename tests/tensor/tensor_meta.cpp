#include <distgrad/tensor/tensor_meta.hpp>
//
#include <functional>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <distgrad/core/error.hpp>

namespace tensor_meta_tests {

namespace {

using distgrad::Reader;
using distgrad::TensorKind;
using distgrad::TensorMeta;
using distgrad::Writer;

TensorMeta strided(at::ScalarType dtype, at::DimVector sizes, at::DimVector strides = {}) {
  TensorMeta meta;
  meta.kind = TensorKind::strided;
  meta.dtype = dtype;
  meta.strides = strides.empty() ? distgrad::dense_strides(sizes) : strides;
  meta.sizes = sizes;
  return meta;
}

TensorMeta sparse(at::DimVector sizes, at::DimVector index_sizes, at::DimVector value_sizes) {
  TensorMeta meta;
  meta.kind = TensorKind::sparse_coo;
  meta.dtype = at::kFloat;
  meta.sizes = sizes;
  meta.parts = {strided(at::kLong, index_sizes), strided(at::kFloat, value_sizes)};
  return meta;
}

TensorMeta round_trip(TensorMeta const& meta) {
  Writer out;
  write_tensor_meta(out, meta);
  Reader in(out.bytes());
  auto const read = distgrad::read_tensor_meta(in);
  CHECK(in.at_end());
  return read;
}

// The text with which a peer's `meta` is refused; empty when it is not.
std::string refusal(TensorMeta const& meta,
                    std::function<void(std::vector<std::byte>&)> change = {}) {
  Writer out;
  write_tensor_meta(out, meta);
  auto bytes = out.take();
  if (change) change(bytes);
  Reader in(bytes);
  try {
    distgrad::read_tensor_meta(in);
    return "";
  } catch (distgrad::Error const& e) {
    CHECK(e.code() == distgrad::errc::bad_value);
    return e.text();
  }
}

bool contains(std::string const& text, std::string const& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

constexpr auto huge = std::numeric_limits<std::int64_t>::max();

TEST_CASE("the description of a tensor survives the wire") {
  auto meta = strided(at::kHalf, {2, 3, 4}, {1, 2, 6});
  meta.requires_grad = true;
  auto const read = round_trip(meta);
  CHECK(read.kind == TensorKind::strided);
  CHECK((read.dtype == at::kHalf));
  CHECK(read.requires_grad);
  CHECK(!read.is_coalesced);
  CHECK(read.device == c10::Device(c10::DeviceType::CPU));
  CHECK(read.sizes == meta.sizes);
  CHECK(read.strides == meta.strides);
  CHECK(read.payload_bytes() == 48);
  CHECK(read.buffer_count() == 1);
}

TEST_CASE("strides of a contiguous tensor are not written") {
  Writer contiguous, transposed;
  write_tensor_meta(contiguous, strided(at::kFloat, {5, 6}));
  write_tensor_meta(transposed, strided(at::kFloat, {5, 6}, {1, 5}));
  CHECK(transposed.size_bytes() == contiguous.size_bytes() + 16);
  CHECK(round_trip(strided(at::kFloat, {5, 6})).strides == at::DimVector{6, 1});
}

TEST_CASE("a device and its index survive the wire") {
  auto meta = strided(at::kFloat, {1});
  meta.device = c10::Device(c10::DeviceType::CUDA, 3);
  CHECK(round_trip(meta).device == meta.device);
}

TEST_CASE("an undefined tensor is one byte") {
  Writer out;
  write_tensor_meta(out, TensorMeta());
  CHECK(out.size_bytes() == 1);
  CHECK(round_trip(TensorMeta()).kind == TensorKind::undefined);
}

TEST_CASE("a sparse tensor has the buffers of its parts") {
  auto meta = sparse({10, 20, 4}, {2, 7}, {7, 4});
  meta.is_coalesced = true;
  auto const read = round_trip(meta);
  CHECK(read.is_coalesced);
  CHECK(read.payload_bytes() == 0);
  CHECK(read.buffer_count() == 2);
  CHECK(read.parts.at(0).payload_bytes() == 2 * 7 * 8);
  CHECK(read.parts.at(1).sizes == at::DimVector{7, 4});
  CHECK(round_trip(sparse({10, 20}, {2, 0}, {0})).buffer_count() == 0);
}

TEST_CASE("[C-095] sizes above 4 GiB keep all their bits") {
  auto const read = round_trip(strided(at::kDouble, {70000, 70000}, {1, 70000}));
  CHECK(read.sizes == at::DimVector{70000, 70000});
  CHECK(read.strides == at::DimVector{1, 70000});
  CHECK(read.payload_bytes() == 39'200'000'000ull);
  std::int64_t const bytes = (std::int64_t{4} << 30) + 1024;
  CHECK(round_trip(strided(at::kByte, {bytes})).payload_bytes() == std::uint64_t(bytes));
  CHECK(round_trip(strided(at::kByte, {huge})).payload_bytes() == std::uint64_t(huge));
}

TEST_CASE("sizes whose product overflows are refused") {
  CHECK(contains(refusal(strided(at::kFloat, {huge / 2})), "overflows"));
  constexpr auto side = std::int64_t{1} << 32;
  CHECK(contains(refusal(strided(at::kByte, {side, side}, {1, 1})), "overflows"));
  // Also next to a size of zero: strides are products, too.
  CHECK(contains(refusal(strided(at::kByte, {0, huge, 3}, {1, 1, 1})), "overflows"));
  CHECK(contains(refusal(strided(at::kByte, {-1}, {1})), "negative"));
}

TEST_CASE("more than 64 dimensions are refused") {
  CHECK(refusal(strided(at::kByte, at::DimVector(64, 1))) == "");
  CHECK(contains(refusal(strided(at::kByte, at::DimVector(65, 1))), "65 dimensions"));
}

TEST_CASE("[C-109] an element type this libtorch does not know is refused by its number") {
  auto const with_type = [](int code) {
    return refusal(strided(at::kByte, {1}), [code](auto& bytes) { bytes[2] = std::byte(code); });
  };
  CHECK(with_type(int(at::kDouble)) == "");
  CHECK(contains(with_type(200), "element type 200"));
  CHECK(contains(with_type(int(at::ScalarType::Undefined)), "element type"));
  CHECK(contains(with_type(int(at::ScalarType::NumOptions)), "element type"));
  CHECK(contains(with_type(int(at::ScalarType::QInt8)), "quantized"));
}

TEST_CASE("unknown kinds, flags and devices are refused") {
  auto const meta = strided(at::kFloat, {2});
  auto const with_byte = [&](std::size_t place, int value) {
    return refusal(meta, [=](auto& bytes) { bytes[place] = std::byte(value); });
  };
  CHECK(contains(with_byte(0, 3), "kind 3"));
  CHECK(contains(with_byte(1, 0x80), "flags"));
  CHECK(contains(with_byte(3, 100), "device"));
  CHECK(contains(with_byte(3, 0xff), "device"));
  CHECK(contains(with_byte(4, 1), "device"));
  CHECK(contains(with_byte(4, 0x80), "device"));
}

TEST_CASE("an integer tensor cannot require gradients") {
  auto meta = strided(at::kLong, {2});
  meta.requires_grad = true;
  CHECK(contains(refusal(meta), "gradients"));
  meta.dtype = at::kComplexFloat;
  CHECK(refusal(meta) == "");
}

TEST_CASE("strides with gaps, overlaps or of an absurd size are refused") {
  for (auto const& strides : {at::DimVector{3, 1}, {1, 1}, {0, 1}, {2, 2}, {huge, 1}, {-2, 1}}) {
    CHECK(refusal(strided(at::kFloat, {2, 2}, strides)) != "");
  }
  CHECK(refusal(strided(at::kFloat, {2, 2}, {1, 2})) == "");
}

TEST_CASE("sparse parts that do not fit together are refused") {
  CHECK(refusal(sparse({10, 20}, {2, 3}, {3})) == "");
  CHECK(refusal(sparse({10, 20}, {2, 3}, {4})) != "");      // other number of entries
  CHECK(refusal(sparse({10, 20}, {3, 3}, {3})) != "");      // more indices than dimensions
  CHECK(refusal(sparse({10, 20}, {1, 3}, {3})) != "");      // a dense dimension is missing
  CHECK(refusal(sparse({10, 20}, {1, 3}, {3, 19})) != "");  // another dense size
  CHECK(refusal(sparse({10, 20}, {6}, {3})) != "");         // indices are no matrix
  CHECK(refusal(sparse({10, 20}, {2, 3}, {})) != "");       // values are no list
  auto wrong_type = sparse({10, 20}, {2, 3}, {3});
  wrong_type.parts[0].dtype = at::kInt;
  CHECK(refusal(wrong_type) != "");
  wrong_type.parts[0].dtype = at::kLong;
  wrong_type.parts[1].dtype = at::kDouble;
  CHECK(refusal(wrong_type) != "");
  auto nested = sparse({10, 20}, {2, 3}, {3});
  nested.parts[1] = nested;
  CHECK(refusal(nested) != "");
}

TEST_CASE("a description that is cut off is refused, wherever it ends") {
  for (auto const& meta : {strided(at::kFloat, {2, 3}, {1, 2}), sparse({4, 5}, {2, 3}, {3})}) {
    Writer out;
    write_tensor_meta(out, meta);
    for (std::size_t size = 0; size < out.size_bytes(); ++size) {
      CHECK(refusal(meta, [size](auto& bytes) { bytes.resize(size); }) != "");
    }
  }
}

TEST_CASE("dense strides are those without gap or overlap, in any order") {
  using distgrad::has_dense_strides;
  CHECK(has_dense_strides({}, {}));
  CHECK(has_dense_strides({2, 3, 4}, {1, 2, 6}));
  CHECK(has_dense_strides({2, 1, 3}, {3, 99, 1}));
  CHECK(has_dense_strides({0, 3}, {17, 4}));
  CHECK(!has_dense_strides({2, 3}, {3}));
  CHECK(!has_dense_strides({2}, {2}));
  CHECK(!has_dense_strides({2, 3}, {4, 1}));
  CHECK(!has_dense_strides({1000}, {0}));
}

}  // namespace

}  // namespace tensor_meta_tests
