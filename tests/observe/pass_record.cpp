#include <distgrad/observe/pass_record.hpp>

#include <doctest/doctest.h>

namespace pass_record_tests {

using namespace distgrad;

TEST_CASE("a history of passes keeps the newest, oldest first") {
  PassHistory history;
  CHECK(history.snapshot().empty());
  for (std::uint32_t i = 1; i <= PassHistory::capacity + 10; ++i) {
    PassRecord record;
    record.id.sequence = i;
    history.add(record);
  }
  auto const kept = history.snapshot();
  REQUIRE(kept.size() == PassHistory::capacity);
  CHECK(kept.front().id.sequence == 11);
  CHECK(kept.back().id.sequence == PassHistory::capacity + 10);
}

}  // namespace pass_record_tests
