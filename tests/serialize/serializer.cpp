#include <distgrad/serialize/serializer.hpp>
//
#include <doctest/doctest.h>

#include <distgrad/testing/tensor_samples.hpp>

namespace serializer_tests {

// An allocator that fails, as this test needs, ends a sanitized program unless it is told not to.
extern "C" char const* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" char const* __tsan_default_options() { return "allocator_may_return_null=1"; }

namespace {

using namespace distgrad;

TEST_CASE("a message has one buffer for each tensor with elements, and shows their memory") {
  auto const a = testing::dense(at::kFloat, {2, 3}), b = testing::dense(at::kFloat, {0});
  auto const c = testing::dense(at::kBFloat16, {});
  std::vector<at::Tensor> const tensors{a, b, at::Tensor(), c};
  Writer out;
  std::vector<Buffer> buffers;
  TensorSerializer().pack(out, buffers, tensors);
  REQUIRE(buffers.size() == 2);
  CHECK(buffers[0].data() == a.data_ptr());
  CHECK(buffers[0].size_bytes() == 24);
  CHECK(buffers[1].data() == c.data_ptr());
  CHECK(buffers[1].size_bytes() == 2);
}

TEST_CASE("packing appends to what the writer and the list hold already") {
  auto const a = testing::dense(at::kFloat, {2});
  Writer out;
  out.number(42);
  std::vector<Buffer> buffers(1);
  pack_tensors(out, buffers, {&a, 1});
  CHECK(buffers.size() == 2);
  Reader in(out.bytes());
  CHECK(in.number<int>() == 42);
  auto const received = unpack_tensors(in, std::span(buffers).subspan(1));
  CHECK(in.at_end());
  CHECK(testing::equal_bits(received.tensors.at(0), a));
}

TEST_CASE("what a transport lands is the storage of the received tensor") {
  auto const a = testing::dense(at::kFloat, {2, 3});
  Writer out;
  std::vector<Buffer> buffers;
  pack_tensors(out, buffers, {&a, 1});
  std::uint64_t const length = buffers[0].size_bytes();
  auto const landed = allocate_landings({&length, 1});
  Reader in(out.bytes());
  auto const received = unpack_tensors(in, landed);
  CHECK(received.tensors.at(0).data_ptr() == static_cast<void*>(landed.at(0).data()));
}

TEST_CASE("a landing that memory cannot hold is not given") {
  std::uint64_t const lengths[] = {16, std::uint64_t{1} << 62, 16};
  CHECK(allocate_landings(lengths).size() == 1);
}

TEST_CASE("a table that announces more tensors than bytes is refused without taking memory") {
  Writer out;
  out.number(std::uint64_t{1} << 60);
  Reader in(out.bytes());
  CHECK_THROWS_AS(unpack_tensors(in, {}), Error);
}

}  // namespace

}  // namespace serializer_tests
