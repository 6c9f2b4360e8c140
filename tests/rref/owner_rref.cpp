#include <distgrad/rref/owner_rref.hpp>

#include <doctest/doctest.h>

namespace owner_rref_tests {

using namespace distgrad;

TEST_CASE("an owner's entry is ready once its value was made") {
  OwnerRRef entry(RRefId{}, nullptr);
  CHECK_FALSE(entry.value().is_ready());
  entry.set_value(ErasedValue::of(std::make_shared<int>(3)));
  CHECK(entry.value().is_ready());
  CHECK(*static_cast<int*>(entry.value().get().value.get()) == 3);
  CHECK(entry.value().get().type == &distgrad::detail::type_key<int>);
}

TEST_CASE("an owner's entry keeps the first outcome, be it a value or an error") {
  auto const error = std::make_exception_ptr(Error(errc::closed));
  OwnerRRef made(RRefId{}, nullptr), failed(RRefId{}, nullptr);
  made.set_value(ErasedValue::of(std::make_shared<int>(3)));
  made.set_error(error);
  CHECK(made.value().error() == nullptr);
  failed.set_error(error);
  failed.set_value(ErasedValue::of(std::make_shared<int>(3)));
  CHECK(failed.value().error() == error);
}

TEST_CASE("whoever waits for an entry that goes away learns it") {
  Future<ErasedValue> value;
  {
    OwnerRRef entry(RRefId{}, nullptr);
    value = entry.value();
  }
  CHECK_THROWS_AS(value.get(), Error);
}

}  // namespace owner_rref_tests
