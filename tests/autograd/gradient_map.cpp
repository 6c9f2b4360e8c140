#include <distgrad/autograd/gradient_map.hpp>

#include <stdexcept>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

namespace gradient_map_tests {

namespace {

using distgrad::GradientMap;

at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); }

at::Tensor sparse(std::vector<std::int64_t> const& rows, at::Tensor const& values) {
  return at::sparse_coo_tensor(at::tensor(rows).unsqueeze(0), values, {10, values.size(1)});
}

}  // namespace

TEST_CASE("the first gradient of a variable is kept without a copy") {
  GradientMap map;
  auto const w = leaf({4});
  auto gradient = at::randn({4});
  void* const data = gradient.data_ptr();
  map.accumulate(w, std::move(gradient));
  CHECK(map.find(w).data_ptr() == data);
  CHECK(map.size() == 1);
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE("a gradient that the caller still holds is copied") {
  GradientMap map;
  auto const w = leaf({4});
  auto const gradient = at::randn({4});
  map.accumulate(w, gradient);
  CHECK(map.find(w).data_ptr() != gradient.data_ptr());
  CHECK(map.find(w).equal(gradient));
}

TEST_CASE("a copy can be asked for") {
  GradientMap map;
  auto const w = leaf({4});
  auto gradient = at::randn({4});
  void* const data = gradient.data_ptr();
  map.accumulate(w, std::move(gradient), false, 0);
  CHECK(map.find(w).data_ptr() != data);
}

TEST_CASE("a gradient whose strides do not suit the variable is copied to ones that do") {
  GradientMap map;
  auto const w = leaf({4, 3});
  map.accumulate(w, at::randn({3, 4}).t());
  CHECK(map.find(w).strides() == w.strides());
}

TEST_CASE("a second gradient is added in place") {
  GradientMap map;
  auto const w = leaf({4});
  map.accumulate(w, at::ones({4}));
  auto const first = map.find(w);
  map.accumulate(w, at::full({4}, 2.0));
  CHECK(map.find(w).is_same(first));
  CHECK(first.equal(at::full({4}, 3.0)));
  CHECK(map.size() == 1);
}

TEST_CASE("with create_graph a sum is a new tensor that can be differentiated") {
  c10::AutoGradMode const mode(true);
  GradientMap map;
  auto const w = leaf({4});
  map.accumulate(w, w.mul(2), true);
  auto const first = map.find(w);
  map.accumulate(w, w.mul(3), true);
  CHECK_FALSE(map.find(w).is_same(first));
  CHECK(map.find(w).requires_grad());
}

TEST_CASE("without create_graph a sum has no graph, whatever the thread's grad mode") {
  c10::AutoGradMode const mode(true);
  GradientMap map, other;
  auto const w = leaf({4});
  map.accumulate(w, at::ones({4}));
  other.accumulate(w, at::ones({4}));
  auto const before = map.find(w);
  map.merge(std::move(other));
  CHECK(map.find(w).is_same(before));
  CHECK_FALSE(map.find(w).requires_grad());
}

TEST_CASE("[DA-62] a contiguous sparse gradient is kept without a copy, then added to") {
  GradientMap map;
  auto const w = leaf({10, 3});
  auto values = at::randn({2, 3});
  auto gradient = sparse({1, 7}, values);
  void const* const data = gradient._values().data_ptr();
  auto const once = gradient.to_dense();
  auto const rows = values.clone();
  values.reset();
  map.accumulate(w, std::move(gradient));
  CHECK(map.find(w)._values().data_ptr() == data);
  for (int i = 0; i < 10; ++i) map.accumulate(w, sparse({1, 7}, rows));
  CHECK(map.find(w).is_sparse());
  CHECK(map.find(w).to_dense().allclose(once.mul(11)));
}

TEST_CASE("[DA-62] a sparse gradient whose values are not contiguous is copied") {
  GradientMap map;
  auto const w = leaf({10, 3});
  auto gradient = sparse({1, 7}, at::randn({3, 2}).t());
  REQUIRE_FALSE(gradient._values().is_contiguous());
  void const* const data = gradient._values().data_ptr();
  map.accumulate(w, std::move(gradient));
  CHECK(map.find(w)._values().data_ptr() != data);
}

TEST_CASE("[DA-63] views of a sparse gradient's parts do not prevent keeping it") {
  GradientMap map;
  auto const w = leaf({10, 3});
  auto gradient = sparse({1, 7}, at::randn({2, 3}));
  auto const view = gradient._values().view(-1);
  map.accumulate(w, std::move(gradient));
  CHECK(map.find(w)._values().data_ptr() == view.data_ptr());
}

TEST_CASE("sparse and dense gradients sum to a dense one in either order") {
  auto const w = leaf({10, 3});
  auto const dense = at::randn({10, 3});
  auto const values = at::randn({2, 3});
  auto const expected = dense.add(sparse({1, 7}, values).to_dense());
  for (bool dense_first : {true, false}) {
    GradientMap map;
    map.accumulate(w, dense_first ? dense : sparse({1, 7}, values));
    map.accumulate(w, dense_first ? sparse({1, 7}, values) : dense);
    CHECK_FALSE(map.find(w).is_sparse());
    CHECK(map.find(w).allclose(expected));
  }
}

TEST_CASE("merging moves what is new and adds to what is there") {
  auto const a = leaf({4}), b = leaf({4});
  GradientMap total, pass;
  total.accumulate(a, at::ones({4}));
  pass.accumulate(a, at::full({4}, 2.0));
  pass.accumulate(b, at::full({4}, 5.0));
  auto const of_b = pass.find(b);
  total.merge(std::move(pass));
  CHECK(total.find(a).equal(at::full({4}, 3.0)));
  CHECK(total.find(b).is_same(of_b));
  CHECK(pass.empty());
  CHECK_FALSE(pass.contains(b));
}

TEST_CASE("entries come in the order in which their variables were met") {
  GradientMap map;
  std::vector<at::Tensor> leaves;
  for (int i = 0; i < 20; ++i) leaves.push_back(leaf({1}));
  for (auto const& w : leaves) map.accumulate(w, at::ones({1}));
  map.accumulate(leaves[0], at::ones({1}));
  std::size_t i = 0;
  map.for_each([&](at::Tensor const& variable, at::Tensor const& gradient) {
    CHECK(variable.is_same(leaves[i]));
    CHECK(gradient.item<float>() == (i == 0 ? 2 : 1));
    ++i;
  });
  CHECK(i == 20);
  map.clear();
  CHECK(map.empty());
  CHECK_FALSE(map.find(leaves[0]).defined());
}

TEST_CASE("an entry outlives the caller's variable, so its key stays unique") {
  GradientMap map;
  map.accumulate(leaf({2}), at::ones({2}));
  map.accumulate(leaf({2}), at::ones({2}));
  CHECK(map.size() == 2);
}

TEST_CASE("a gradient that cannot be added leaves the map as it was") {
  GradientMap map;
  auto const a = leaf({4}), b = leaf({4});
  map.accumulate(a, at::ones({4}));
  CHECK_THROWS(map.accumulate(a, at::ones({3})));
  CHECK(map.find(a).equal(at::ones({4})));
  CHECK_THROWS(map.accumulate(b, at::ones({3, 3}), false, 0));
  CHECK_FALSE(map.contains(b));
  CHECK(map.size() == 1);
}

}  // namespace gradient_map_tests
