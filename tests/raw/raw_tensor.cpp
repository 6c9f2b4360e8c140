#include <distgrad/raw/raw_tensor.hpp>

#include <doctest/doctest.h>

namespace raw_tensor_tests {

namespace {

using namespace distgrad;

TEST_CASE("a raw tensor is whole when its elements are as many as its sizes say") {
  CHECK(RawTensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3}).is_whole());
  CHECK(RawTensor::of<double>({1}, {}).is_whole());
  CHECK(RawTensor::of<std::int8_t>({}, {3, 0}).is_whole());
  CHECK_FALSE(RawTensor::of<float>({1, 2}, {3}).is_whole());
  CHECK_FALSE(RawTensor::of<float>({1, 2}, {-1, -2}).is_whole());
  CHECK_FALSE(RawTensor::of<float>({1, 2}, {std::int64_t{1} << 62, 5}).is_whole());
  CHECK_FALSE(RawTensor::of<float>({1}, std::vector<std::int64_t>(65, 1)).is_whole());
}

TEST_CASE("elements are seen as what they are, or not at all") {
  auto const tensor = RawTensor::of<std::int32_t>({7, 8}, {2});
  CHECK(tensor.as<std::int32_t>()[1] == 8);
  CHECK(tensor.as<std::int32_t const>().size() == 2);
  CHECK(tensor.as<float>().empty());
}

TEST_CASE("a view shares memory, and keeps its owner as long as a copy lives") {
  auto owner = std::make_shared<std::vector<float>>(3, 1.f);
  std::weak_ptr<void> const alive = owner;
  auto* const first = owner->data();
  auto tensor = RawTensor::view(std::span(*owner), {3}, owner);
  owner.reset();
  auto const copy = tensor;
  tensor = {};
  CHECK_FALSE(alive.expired());
  CHECK(copy.as<float>().data() == first);
}

TEST_CASE("memory that there is not is an empty buffer") {
  CHECK(distgrad::detail::allocate_raw(~std::uint64_t{0}).data() == nullptr);
  CHECK(distgrad::detail::allocate_raw(16).size_bytes() == 16);
}

}  // namespace

}  // namespace raw_tensor_tests
