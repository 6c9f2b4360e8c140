#include <distgrad/serialize/visit_tensors.hpp>

#include <array>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>

#include <doctest/doctest.h>

namespace visit_tensors_tests {

namespace {

at::Tensor number(double value) { return at::full({1}, value); }

template <class T>
std::vector<double> numbers_in(T&& value) {
  std::vector<double> numbers;
  distgrad::visit_tensors(value, [&](at::Tensor& tensor) {
    numbers.push_back(tensor.defined() ? tensor.item<double>() : -1);
  });
  return numbers;
}

using Numbers = std::vector<double>;

struct Inner {
  at::Tensor tensor;
  std::string text;
};
struct Outer {
  int count = 0;
  Inner inner;
  std::vector<Inner> more;
};

class Hooked {
 public:
  explicit Hooked(double value) : tensor_(number(value)) {}
  friend auto distgrad_fields(Hooked& h) { return std::tie(h.count_, h.tensor_); }

 private:
  int count_ = 0;
  at::Tensor tensor_;
};
class Closed {
 public:
  Closed() : tensor_(number(1)) {}
  double value() const { return tensor_.item<double>(); }

 private:
  at::Tensor tensor_;
};

}  // namespace

TEST_CASE("a tensor is visited, an undefined one too") {
  CHECK(numbers_in(number(3)) == Numbers{3});
  CHECK(numbers_in(at::Tensor()) == Numbers{-1});
}

TEST_CASE("containers are visited in their order") {
  CHECK(numbers_in(std::vector{number(1), number(2)}) == Numbers{1, 2});
  CHECK(numbers_in(std::array{number(1), number(2)}) == Numbers{1, 2});
  CHECK(numbers_in(std::tuple{number(1), 2, std::pair{number(3), number(4)}}) == Numbers{1, 3, 4});
  CHECK(numbers_in(std::map<std::string, at::Tensor>{{"b", number(2)}, {"a", number(1)}}) ==
        Numbers{1, 2});
  CHECK(numbers_in(std::unordered_map<int, std::vector<at::Tensor>>{{1, {number(1)}}}) ==
        Numbers{1});
  CHECK(numbers_in(std::vector<std::vector<at::Tensor>>{{number(1)}, {}, {number(2)}}) ==
        Numbers{1, 2});
}

TEST_CASE("optionals and variants are visited where they hold tensors") {
  CHECK(numbers_in(std::optional(number(1))) == Numbers{1});
  CHECK(numbers_in(std::optional<at::Tensor>()).empty());
  std::variant<int, at::Tensor> either = number(2);
  CHECK(numbers_in(either) == Numbers{2});
  either = 1;
  CHECK(numbers_in(either).empty());
}

TEST_CASE("fields of aggregates, and those a type names, are visited") {
  CHECK(numbers_in(Outer{1, {number(1), "a"}, {{number(2), "b"}, {number(3), "c"}}}) ==
        Numbers{1, 2, 3});
  CHECK(numbers_in(Hooked(4)) == Numbers{4});
}

TEST_CASE("what holds no tensors, or does not show them, is passed over") {
  std::vector<at::Tensor> elsewhere{number(1)};
  CHECK(numbers_in(1).empty());
  CHECK(numbers_in(std::string("text")).empty());
  CHECK(numbers_in(std::string_view("text")).empty());
  CHECK(numbers_in(std::vector<bool>{true}).empty());
  CHECK(numbers_in(std::set<int>{1}).empty());
  CHECK(numbers_in(std::span(elsewhere)).empty());
  CHECK(numbers_in(&elsewhere).empty());
  Closed closed;
  CHECK(numbers_in(closed).empty());
  CHECK(closed.value() == 1);
}

TEST_CASE("a visitor may replace tensors where they are") {
  Outer outer{1, {number(1), "a"}, {{number(2), "b"}}};
  distgrad::visit_tensors(outer, [](at::Tensor& tensor) { tensor = tensor.mul(10); });
  CHECK(numbers_in(outer) == Numbers{10, 20});
}

}  // namespace visit_tensors_tests
