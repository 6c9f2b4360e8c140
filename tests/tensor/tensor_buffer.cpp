#include <distgrad/tensor/tensor_buffer.hpp>
//
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <string>

#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <doctest/doctest.h>

#include <distgrad/core/error.hpp>
#include <distgrad/testing/tensor_samples.hpp>

namespace tensor_buffer_tests {

namespace {

using distgrad::append_tensor;
using distgrad::Buffer;
using distgrad::make_tensor;
using distgrad::TensorKind;
using distgrad::TensorMeta;
using namespace distgrad::testing;

struct Shown {
  std::vector<Buffer> buffers;
  TensorMeta meta;
};
Shown show(at::Tensor const& tensor) {
  Shown shown;
  shown.meta = append_tensor(tensor, shown.buffers);
  return shown;
}

std::size_t bytes_of(Shown const& shown) {
  std::size_t bytes = 0;
  for (auto const& buffer : shown.buffers) bytes += buffer.size_bytes();
  return bytes;
}

std::string refusal(TensorMeta const& meta, std::vector<Buffer> const& buffers) {
  try {
    make_tensor(meta, buffers);
    return "";
  } catch (distgrad::Error const& e) {
    CHECK(e.code() == distgrad::errc::bad_value);
    return e.text();
  }
}

TEST_CASE("dense memory is shown where it is") {
  for (auto const& layout : all_layouts()) {
    CAPTURE(layout.name);
    auto const tensor = layout.make(at::kFloat);
    auto const shown = show(tensor);
    if (tensor.numel() == 0) {
      CHECK(shown.buffers.empty());
    } else {
      REQUIRE(shown.buffers.size() == 1);
      CHECK(shown.buffers[0].data() == tensor.data_ptr());
    }
  }
}

TEST_CASE("[C-099] a view ships its elements, not its storage") {
  auto const big = dense(at::kFloat, {1024, 1024});
  CHECK(bytes_of(show(big.select(0, 2))) == 1024 * 4);
  CHECK(bytes_of(show(big.narrow(0, 0, 600))) == 600 * 1024 * 4);
  CHECK(bytes_of(show(big.select(1, 3))) == 1024 * 4);
  CHECK(bytes_of(show(dense(at::kFloat, {1}).expand({1000}))) == 1000 * 4);
  for (auto const& layout : gapped_layouts()) {
    auto const tensor = layout.make(at::kDouble);
    CHECK(bytes_of(show(tensor)) == std::size_t(tensor.numel()) * 8);
  }
}

TEST_CASE("[C-108] every element type ships numel times its size") {
  for (auto const dtype : all_dtypes()) {
    CHECK(bytes_of(show(dense(dtype, {3, 4}))) == 12 * c10::elementSize(dtype));
  }
}

TEST_CASE("a compact copy keeps the order of the strides") {
  auto const tensor = dense(at::kFloat, {9, 7}).t().narrow(0, 1, 3);  // [3, 9], columns close
  auto const shown = show(tensor);
  CHECK(shown.meta.sizes == at::DimVector{3, 9});
  CHECK(shown.meta.strides == at::DimVector{1, 3});
}

TEST_CASE("buffers keep a tensor's memory alive, and do not keep it longer") {
  auto tensor = dense(at::kFloat, {1000});
  auto const expected = element_bytes(tensor);
  auto shown = show(tensor);
  auto const uses = tensor.storage().use_count();
  CHECK(uses >= 2);
  auto storage = tensor.storage();
  tensor.reset();
  CHECK(std::memcmp(shown.buffers[0].data(), expected.data(), expected.size()) == 0);
  shown.buffers.clear();
  CHECK(storage.use_count() == 1);
}

TEST_CASE("memory that nobody owns is copied") {
  float values[] = {1, 2, 3};
  auto const unowned = at::from_blob(values, {3}, at::kFloat);
  auto const shown = show(unowned);
  CHECK(shown.buffers.at(0).data() != static_cast<void*>(values));
  CHECK(std::memcmp(shown.buffers[0].data(), values, sizeof values) == 0);
  auto const owned = at::from_blob(
      values, {3}, [](void*) {}, at::kFloat);
  CHECK(show(owned).buffers.at(0).data() == static_cast<void*>(values));
}

TEST_CASE("a tensor of lazy zeros ships zeros") {
  auto const zeros = at::_efficientzerotensor({2, 3}, at::kFloat);
  auto const shown = show(zeros);
  REQUIRE(bytes_of(shown) == 24);
  float const expected[6] = {};
  CHECK(std::memcmp(shown.buffers[0].data(), expected, 24) == 0);
}

TEST_CASE("showing a tensor records nothing and leaves its version alone") {
  auto const leaf = dense(at::kComplexFloat, {4, 4}).requires_grad_();
  auto const views = {leaf, leaf.select(1, 2), leaf.conj(), leaf.mul(2).t()};
  for (auto const& tensor : views) {
    auto const version = tensor._version();
    auto const shown = show(tensor);
    CHECK(shown.meta.requires_grad);
    CHECK(tensor._version() == version);
    CHECK(!make_tensor(shown.meta, shown.buffers).requires_grad());
  }
}

TEST_CASE("a landing becomes the tensor's own storage") {
  auto const source = show(dense(at::kInt, {5, 6}));
  auto landing = distgrad::allocate_landing(120);
  REQUIRE(landing.data() != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(landing.data()) % 64 == 0);
  std::memcpy(landing.data(), source.buffers[0].data(), 120);
  void const* const memory = landing.data();
  auto tensor = make_tensor(source.meta, {&landing, 1});
  landing = {};
  CHECK(tensor.data_ptr() == memory);
  CHECK(equal_bits(tensor, dense(at::kInt, {5, 6})));
  CHECK(tensor.storage().resizable());
  tensor.resize_({10, 10});
  CHECK(tensor.numel() == 100);
}

TEST_CASE("foreign memory becomes a tensor that holds it") {
  auto const memory = std::make_shared<std::array<double, 8>>();
  memory->fill(1.5);
  std::weak_ptr<void> const alive = memory;
  auto const shown = show(dense(at::kDouble, {8}));
  auto tensor = [&] {
    Buffer const buffer(std::shared_ptr<void>(memory, memory->data()), memory->data(), 64);
    return make_tensor(shown.meta, {&buffer, 1});
  }();
  CHECK(tensor.data_ptr() == memory->data());
  CHECK(tensor.sum().item<double>() == 12);
  CHECK(memory.use_count() == 2);
  tensor.reset();
  CHECK(memory.use_count() == 1);
}

TEST_CASE("memory that is not aligned for the element type is copied") {
  auto const landing = distgrad::allocate_landing(65);
  auto const shown = show(dense(at::kDouble, {8}));
  std::memcpy(landing.data() + 1, shown.buffers[0].data(), 64);
  Buffer const shifted(landing.owner(), landing.data() + 1, 64);
  auto const tensor = make_tensor(shown.meta, {&shifted, 1});
  CHECK(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 8 == 0);
  CHECK(equal_bits(tensor, dense(at::kDouble, {8})));
}

TEST_CASE("[C-095] a tensor above 4 GiB is made of memory that is not touched") {
  std::size_t const bytes = (std::size_t{4} << 30) + 1024;
  auto* const memory =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  TensorMeta meta;
  meta.kind = TensorKind::strided;
  meta.dtype = at::kByte;
  meta.sizes = {std::int64_t(bytes)};
  meta.strides = {1};
  {
    Buffer const buffer(std::shared_ptr<void>(memory, [](void*) {}), memory, bytes);
    auto const tensor = make_tensor(meta, {&buffer, 1});
    CHECK(tensor.numel() == std::int64_t(bytes));
    CHECK(static_cast<char*>(tensor.narrow(0, bytes - 1, 1).data_ptr()) ==
          static_cast<char*>(memory) + bytes - 1);
    auto const shown = show(tensor);
    CHECK(bytes_of(shown) == bytes);
    CHECK(shown.buffers[0].data() == memory);
    Buffer const shorter(buffer.owner(), memory, bytes & 0xffffffff);
    CHECK(refusal(meta, {shorter}) != "");
  }
  munmap(memory, bytes);
}

TEST_CASE("[C-100] views of one storage and equal tensors arrive apart") {
  auto const flat = dense(at::kFloat, {400});
  std::vector<Buffer> buffers;
  std::vector<TensorMeta> metas;
  for (int i = 0; i < 100; ++i) metas.push_back(append_tensor(flat.narrow(0, 4 * i, 4), buffers));
  std::size_t total = 0;
  for (auto const& buffer : buffers) total += buffer.size_bytes();
  CHECK(total == 1600);
}

TEST_CASE("a sparse index out of range is refused before libtorch uses it") {
  auto const shown = show(sparse(at::kFloat, 3, true));  // sizes [3, 5]
  REQUIRE(shown.buffers.size() == 2);
  for (std::int64_t const bad : {std::int64_t{3}, std::int64_t{-1}, std::int64_t{1} << 62}) {
    auto changed = distgrad::allocate_landing(shown.buffers[0].size_bytes());
    std::memcpy(changed.data(), shown.buffers[0].data(), changed.size_bytes());
    std::memcpy(changed.data() + 8, &bad, 8);
    auto const text = refusal(shown.meta, {changed, shown.buffers[1]});
    CHECK(text.find("index " + std::to_string(bad)) != std::string::npos);
  }
}

TEST_CASE("a claim to be coalesced is checked") {
  auto const shown = show(sparse(at::kFloat, 4, false));
  CHECK(!make_tensor(shown.meta, shown.buffers).is_coalesced());
  auto lie = shown.meta;
  lie.is_coalesced = true;
  CHECK(refusal(lie, shown.buffers).find("coalesced") != std::string::npos);
}

TEST_CASE("[C-106] received sparse gradients add up") {
  auto const shown = show(sparse(at::kFloat, 3, true, {2}));
  auto const a = make_tensor(shown.meta, shown.buffers), b = make_tensor(shown.meta, shown.buffers);
  auto const sum = a.add(b);
  CHECK(sum.is_sparse());
  CHECK(sum.to_dense().equal(a.to_dense().mul(2)));
}

TEST_CASE("a tensor with too few or too short buffers is refused") {
  auto const shown = show(dense(at::kFloat, {4}));
  CHECK(refusal(shown.meta, {}) != "");
  CHECK(refusal(shown.meta, {shown.buffers[0], shown.buffers[0]}) != "");
  CHECK(refusal(shown.meta, {Buffer()}) != "");
  CHECK(refusal(shown.meta, {Buffer(shown.buffers[0].owner(), nullptr, 16)}) != "");
}

TEST_CASE("a tensor for another device is refused") {
  auto shown = show(dense(at::kFloat, {4}));
  shown.meta.device = c10::Device(c10::DeviceType::CUDA, 0);
  CHECK(refusal(shown.meta, shown.buffers).find("cuda:0") != std::string::npos);
}

TEST_CASE("[C-105] [C-111] tensors that cannot be sent are refused with advice") {
  auto const matrix = dense(at::kInt, {2, 2}).to(at::kFloat);
  std::pair<at::Tensor, char const*> const cases[] = {
      {matrix.to_sparse_csr(), "SparseCsr"},
      {at::quantize_per_tensor(matrix, 0.1, 0, at::kQInt8), "quantized"},
      {matrix.to(c10::Device(c10::DeviceType::Meta)), "meta"},
  };
  for (auto const& [tensor, word] : cases) {
    std::vector<Buffer> buffers(1);
    try {
      append_tensor(tensor, buffers);
      FAIL("accepted");
    } catch (distgrad::Error const& e) {
      CHECK(e.code() == distgrad::errc::unsupported_tensor);
      CHECK(e.text().find(word) != std::string::npos);
      CHECK(e.text().find("send ") != std::string::npos);
    }
    CHECK(buffers.size() == 1);
  }
}

}  // namespace

}  // namespace tensor_buffer_tests
