#include <distgrad/rpc/function.hpp>

#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <distgrad/rpc/draft.hpp>

namespace function_tests {

using namespace distgrad;

namespace {
namespace function_test {

int add(int x, std::string const& y) { return x + int(y.size()); }
void nothing() {}
int quiet(int x) noexcept { return x; }
int fail(int) { throw std::runtime_error("no"); }
std::string const& reference(std::string const& x) {
  static std::string kept;
  return kept = x;
}
Promise<int> promised;
Future<int> later(int) { return promised.future(); }
Future<void> later_nothing() {
  return make_ready_future(0).then([](auto const&) {});
}
struct Opaque {
  explicit Opaque(int v) : value(v) {}
  int value;
  std::unique_ptr<int> pointer;
};
Opaque make_opaque(int x) { return Opaque(x); }
std::unique_ptr<int> only_moved(int x) { return std::make_unique<int>(x); }
struct Object {
  int get(int) const noexcept;
  void set(std::string);
};

/// Runs `F` as a callee would, with arguments that a caller encoded.
template <auto F>
struct Run {
  Writer writer;
  std::vector<at::Tensor> tensors;
  Services services;
  std::unique_ptr<BoundCall> call;
  int done = 0;
  std::exception_ptr error;

  template <class... Args>
  explicit Run(Args const&... args) {
    Encoder out{writer, tensors, {}, services};
    encode_values(out, args...);
    Reader reader(writer.bytes());
    Decoder in{reader, tensors, {}, services};
    call = distgrad::detail::Registered<F>::function.entry.bind(in);
    CHECK(reader.at_end());
    call->run([this](std::exception_ptr e) {
      ++done;
      error = e;
    });
  }
  template <class R>
  R result() {
    Writer out;
    Encoder encoder{out, tensors, {}, services};
    call->encode_result(encoder);
    Reader reader(out.bytes());
    Decoder in{reader, tensors, {}, services};
    return std::get<0>(decode_values<R>(in));
  }
};

}  // namespace function_test
}  // namespace

using namespace function_test;
using distgrad::detail::Registered;
using distgrad::detail::Shape;

// What a caller gets and sends follows from the function's type.
static_assert(std::is_same_v<Shape<decltype(&add)>::Parameters, std::tuple<int, std::string>>);
static_assert(std::is_same_v<Shape<decltype(&add)>::Result, int>);
static_assert(std::is_same_v<Shape<decltype(&reference)>::Result, std::string>);
static_assert(std::is_same_v<Shape<decltype(&later)>::Result, int>);
static_assert(std::is_same_v<Shape<decltype(&later_nothing)>::Result, void>);
static_assert(Shape<decltype(&later)>::returns_future && !Shape<decltype(&add)>::returns_future);
static_assert(std::is_same_v<Shape<decltype(&Object::get)>::Class, Object const>);
static_assert(std::is_same_v<Shape<decltype(&Object::set)>::Class, Object>);
static_assert(!Shape<void (*)(int const&, std::string)>::modifies_arguments);
static_assert(Shape<void (*)(int&)>::modifies_arguments);
static_assert(!Shape<void (*)(int&&)>::modifies_arguments);

TEST_CASE("a bound call runs its function with the decoded arguments") {
  Run<add> run(3, std::string("four"));
  CHECK(run.done == 1);
  CHECK(run.error == nullptr);
  CHECK(run.result<int>() == 7);
  Run<nothing> none;
  CHECK(none.done == 1);
  CHECK(Run<quiet>(8).result<int>() == 8);
  Run<reference> copied(std::string("x"));
  CHECK(copied.result<std::string>() == "x");
}

TEST_CASE("what a function throws is handed to done, once") {
  Run<fail> run(1);
  CHECK(run.done == 1);
  CHECK_THROWS_WITH(std::rethrow_exception(run.error), "no");
}

TEST_CASE("a function that returns a future is done when the future is") {
  promised = Promise<int>();
  Run<later> run(1);
  CHECK(run.done == 0);
  promised.set_value(5);
  CHECK(run.done == 1);
  CHECK(run.result<int>() == 5);
  promised = Promise<int>();
  Run<later> failed(1);
  promised.set_error(std::make_exception_ptr(std::runtime_error("late")));
  CHECK(failed.done == 1);
  CHECK_THROWS_WITH(std::rethrow_exception(failed.error), "late");
  Run<later_nothing> none;
  CHECK(none.done == 1);
  CHECK(none.error == nullptr);
}

TEST_CASE("a result that cannot be sent can stay, and says so when it should leave") {
  Run<make_opaque> run(6);
  auto const kept = run.call->take_result();
  CHECK(kept.type == &distgrad::detail::type_key<Opaque>);
  CHECK(std::string(kept.type_name).find("Opaque") != std::string::npos);
  CHECK(static_cast<Opaque const*>(kept.value.get())->value == 6);
  Writer out;
  std::vector<at::Tensor> tensors;
  Services services;
  Encoder encoder{out, tensors, {}, services};
  try {
    kept.encode(encoder, kept.value.get());
    FAIL_CHECK("an opaque value was sent");
  } catch (Error const& error) {
    CHECK(error.code() == errc::not_supported);
    CHECK(error.text().find("Opaque") != std::string::npos);
  }
  Run<only_moved> moved(7);
  CHECK(**static_cast<std::unique_ptr<int> const*>(moved.call->take_result().value.get()) == 7);
}

TEST_CASE("arguments that are cut off are noticed before the function runs") {
  Writer writer;
  writer.number(3);
  Reader reader(writer.bytes());
  std::vector<at::Tensor> tensors;
  Services services;
  Decoder in{reader, tensors, {}, services};
  (void)Registered<add>::function.entry.bind(in);
  CHECK_FALSE(values_end(in));
}

TEST_CASE("signatures tell argument and result types apart, not how they are passed") {
  auto const of = []<class R, class... A>(R (*)(A...)) {
    using S = Shape<R (*)(A...)>;
    return distgrad::detail::function_signature<typename S::Result, typename S::Parameters>::value;
  };
  CHECK(of(static_cast<int (*)(int)>(nullptr)) ==
        of(static_cast<int const& (*)(int const&)>(nullptr)));
  CHECK(of(static_cast<int (*)(int)>(nullptr)) == of(static_cast<Future<int> (*)(int)>(nullptr)));
  std::vector<std::uint64_t> const all{of(static_cast<int (*)(int)>(nullptr)),
                                       of(static_cast<int (*)(long)>(nullptr)),
                                       of(static_cast<long (*)(int)>(nullptr)),
                                       of(static_cast<void (*)(int)>(nullptr)),
                                       of(static_cast<int (*)()>(nullptr)),
                                       of(static_cast<int (*)(int, int)>(nullptr)),
                                       of(static_cast<int (*)(std::vector<int>)>(nullptr))};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) CHECK(all[i] != all[j]);
  }
}

}  // namespace function_tests
