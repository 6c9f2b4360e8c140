#include <distgrad/core/unique_function.hpp>

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace unique_function_tests {

using distgrad::unique_function;

namespace {

/// Counts how many of itself exist, so that a test sees leaks and double destruction.
struct Counted {
  explicit Counted(int& alive) : alive_(&alive) { ++*alive_; }
  Counted(Counted&& other) noexcept : alive_(other.alive_) { ++*alive_; }
  ~Counted() { --*alive_; }
  int operator()() const { return *alive_; }
  int* alive_;
};

/// The same, but too large to be kept inside.
struct LargeCounted : Counted {
  using Counted::Counted;
  std::array<char, 256> ballast{};
};

/// Small, but its move may throw, so it must not be moved by a noexcept move of its holder.
struct MayThrowOnMove {
  explicit MayThrowOnMove(int& moves) : moves_(&moves) {}
  MayThrowOnMove(MayThrowOnMove&& other) noexcept(false) : moves_(other.moves_) { ++*moves_; }
  int operator()() const { return *moves_; }
  int* moves_;
};

int twice(int x) { return 2 * x; }

}  // namespace

static_assert(std::is_nothrow_move_constructible_v<unique_function<void()>>);
static_assert(std::is_nothrow_move_assignable_v<unique_function<void()>>);
static_assert(!std::is_copy_constructible_v<unique_function<void()>>);
static_assert(!std::is_constructible_v<unique_function<int(int)>, std::string>);
static_assert(!std::is_constructible_v<unique_function<int()>, int (*)(int)>);

TEST_CASE("an empty function is false, and so is one made from nullptr or reset with it") {
  unique_function<void()> f;
  CHECK_FALSE(f);
  CHECK_FALSE(unique_function<void()>(nullptr));
  f = [] {};
  CHECK(f);
  f = nullptr;
  CHECK_FALSE(f);
}

TEST_CASE("it calls functions, lambdas and callables that own something") {
  unique_function<int(int)> f = twice;
  CHECK(f(21) == 42);
  f = [p = std::make_unique<int>(40)](int x) { return *p + x; };
  CHECK(f(2) == 42);
}

TEST_CASE("a callable keeps its state between calls") {
  unique_function<int()> f = [n = 0]() mutable { return ++n; };
  CHECK(f() == 1);
  CHECK(f() == 2);
}

TEST_CASE("arguments are passed on without a copy, references as references") {
  unique_function<std::size_t(std::unique_ptr<std::string>, int&)> f =
      [](std::unique_ptr<std::string> text, int& calls) {
        ++calls;
        return text->size();
      };
  int calls = 0;
  CHECK(f(std::make_unique<std::string>("seven77"), calls) == 7);
  CHECK(calls == 1);
}

TEST_CASE("a returned reference is the callee's own") {
  int value = 1;
  unique_function<int&()> f = [&]() -> int& { return value; };
  f() = 5;
  CHECK(value == 5);
}

TEST_CASE("an exception of the callable reaches the caller and leaves the function usable") {
  unique_function<int(bool)> f = [](bool fail) { return fail ? throw 7 : 1; };
  CHECK_THROWS_AS(f(true), int);
  CHECK(f(false) == 1);
}

TEST_CASE_TEMPLATE("the callable is destroyed exactly once", F, Counted, LargeCounted) {
  int alive = 0;
  SUBCASE("at the end of the function's life") {
    unique_function<int()> f = F(alive);
    CHECK(f() == 1);
  }
  SUBCASE("after moves of the function") {
    unique_function<int()> a = F(alive);
    unique_function<int()> b = std::move(a);
    CHECK_FALSE(a);
    CHECK(b() == 1);
    a = std::move(b);
    CHECK_FALSE(b);
    CHECK(a() == 1);
  }
  SUBCASE("when another takes its place") {
    int others = 0;
    unique_function<int()> f = F(alive);
    f = unique_function<int()>(F(others));
    CHECK(alive == 0);
    CHECK(others == 1);
  }
  SUBCASE("when assigned to itself, not at all") {
    unique_function<int()> f = F(alive);
    auto& same = f;
    f = std::move(same);
    REQUIRE(f);
    CHECK(f() == 1);
  }
  CHECK(alive == 0);
}

TEST_CASE("a callable whose move may throw is not moved with its holder") {
  int moves = 0;
  unique_function<int()> a = MayThrowOnMove(moves);
  int const moves_to_construct = moves;
  unique_function<int()> b = std::move(a);
  CHECK(b() == moves_to_construct);
}

}  // namespace unique_function_tests
