#include <distgrad/autograd/context_table.hpp>

#include <doctest/doctest.h>
#include <distgrad/core/error.hpp>

#include <string>
#include <thread>

namespace context_table_tests {

using namespace distgrad;

namespace {

struct Fixture {
  IdSource ids{WorkerId{3}, Incarnation{8}};
  ContextTable table{ids};
};

ContextId foreign(std::uint64_t n) { return {WorkerId{1}, Incarnation{2}, n}; }

template <class F>
std::string unknown_context_text(F&& f) {
  try {
    f();
  } catch (Error const& error) {
    CHECK(error.code() == errc::unknown_context);
    return error.text();
  }
  return {};
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a new context has an id of its worker and is found by it") {
  auto const first = table.create(), second = table.create();
  CHECK(first->id().worker == WorkerId{3});
  CHECK(first->id() != second->id());
  CHECK(table.find(first->id()) == first);
  CHECK(table.get(second->id()) == second);
  CHECK(table.size() == 2);
}

TEST_CASE_FIXTURE(Fixture, "a context that a message names is made once") {
  auto const made = table.get_or_create(foreign(1));
  CHECK(made->id() == foreign(1));
  CHECK(table.get_or_create(foreign(1)) == made);
  CHECK(table.size() == 1);
}

TEST_CASE_FIXTURE(Fixture, "a context that is not there is an error that names it") {
  CHECK(table.find(foreign(1)) == nullptr);
  auto const text = unknown_context_text([&] { table.get(foreign(1)); });
  CHECK(text.find(to_string(foreign(1))) != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "a released context does not come back with a late message") {
  auto const made = table.get_or_create(foreign(1));
  CHECK(table.release(foreign(1)) == made);
  CHECK(table.release(foreign(1)) == nullptr);
  CHECK(table.size() == 0);
  CHECK_FALSE(unknown_context_text([&] { table.get_or_create(foreign(1)); }).empty());
  CHECK(table.size() == 0);
  // Nor one that was released before its first message arrived.
  CHECK(table.release(foreign(2)) == nullptr);
  CHECK_FALSE(unknown_context_text([&] { table.get_or_create(foreign(2)); }).empty());
}

TEST_CASE_FIXTURE(Fixture, "an invalid id makes no context") {
  CHECK_FALSE(unknown_context_text([&] { table.get_or_create({}); }).empty());
  CHECK(table.size() == 0);
}

TEST_CASE_FIXTURE(Fixture, "each thread has a current context of its own for each table") {
  IdSource other_ids{WorkerId{4}, Incarnation{8}};
  ContextTable other{other_ids};
  auto const context = table.create(), other_context = other.create();
  CHECK(table.current() == nullptr);
  CHECK(table.install(context) == nullptr);
  CHECK(other.install(other_context) == nullptr);
  CHECK(table.current() == context);
  CHECK(other.current() == other_context);
  std::thread([&] { CHECK(table.current() == nullptr); }).join();
  auto const next = table.create();
  CHECK(table.install(next) == context);
  CHECK(table.install(nullptr) == next);
  CHECK(table.current() == nullptr);
  CHECK(table.install(nullptr) == nullptr);
  CHECK(other.install(nullptr) == other_context);
}

}  // namespace context_table_tests
