#include <distgrad/engine/input_buffer.hpp>

#include <utility>

#include <doctest/doctest.h>

#include <ATen/ATen.h>

namespace input_buffer_tests {

namespace {

at::Tensor sum_of(at::Tensor first, at::Tensor second) {
  at::NoGradGuard const off;
  at::Tensor sum;
  distgrad::add_to_input(sum, std::move(first));
  distgrad::add_to_input(sum, std::move(second));
  return sum;
}

at::Tensor sparse_row() {
  return at::sparse_coo_tensor(at::ones({1, 1}, at::kLong), at::ones({1, 3}), {4, 3});
}

}  // namespace

TEST_CASE("the first gradient is kept, an undefined one adds nothing") {
  auto const g = at::ones({3});
  CHECK(sum_of(g, {}).is_same(g));
  CHECK(sum_of({}, g).is_same(g));
  CHECK_FALSE(sum_of({}, {}).defined());
}

TEST_CASE("a gradient nobody else refers to is added to in place") {
  auto first = at::ones({3});
  void* const data = first.data_ptr();
  auto const sum = sum_of(std::move(first), at::ones({3}));
  CHECK(sum.data_ptr() == data);
  CHECK(sum.equal(at::full({3}, 2.0)));
}

TEST_CASE("a gradient, or a view of its storage, that somebody holds is not written") {
  auto const held = at::ones({3});
  CHECK(sum_of(held, at::ones({3})).equal(at::full({3}, 2.0)));
  CHECK(held.equal(at::ones({3})));

  auto base = at::ones({3});
  auto const view = base.view({3, 1});
  sum_of(std::move(base), at::ones({3}));
  CHECK(view.equal(at::ones({3, 1})));
}

TEST_CASE("an expanded gradient is not written") {
  auto const sum = sum_of(at::ones({1}).expand({3}), at::arange(3.0));
  CHECK(sum.equal(at::arange(1.0, 4.0)));
}

TEST_CASE("with grad mode on every sum is a new tensor with a graph") {
  at::AutoGradMode const on(true);
  auto const w = at::ones({3}).requires_grad_();
  auto first = w.mul(2);
  void* const data = first.data_ptr();
  at::Tensor sum = std::move(first);
  distgrad::add_to_input(sum, w.mul(3));
  CHECK(sum.data_ptr() != data);
  CHECK(sum.requires_grad());
}

TEST_CASE("sparse and dense sum to dense in either order, sparse and sparse to sparse") {
  auto const dense = sum_of(sparse_row(), at::ones({4, 3}));
  CHECK_FALSE(dense.is_sparse());
  CHECK(dense.equal(sum_of(at::ones({4, 3}), sparse_row())));
  CHECK(dense.sum().item<float>() == 15);

  auto first = at::ones({4, 3});
  void* const data = first.data_ptr();
  CHECK(sum_of(sparse_row(), std::move(first)).data_ptr() == data);
  CHECK(sum_of(sparse_row(), sparse_row()).is_sparse());
}

TEST_CASE("a conjugated gradient is added by value") {
  auto const z = at::randn({3}, at::kComplexFloat);
  auto const sum = sum_of(z.clone().conj(), z.clone());
  CHECK(at::imag(sum).equal(at::zeros({3})));
}

TEST_CASE("gradients of different types sum in the wider one") {
  CHECK((sum_of(at::ones({3}), at::ones({3}, at::kDouble)).scalar_type() == at::kDouble));
}

}  // namespace input_buffer_tests
