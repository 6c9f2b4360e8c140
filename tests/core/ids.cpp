#include <distgrad/core/ids.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <thread>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace ids_tests {

using namespace distgrad;

static_assert(!std::is_convertible_v<ContextId, AutogradMessageId>);
static_assert(!std::is_convertible_v<RRefId, ForkId>);
static_assert(!std::is_convertible_v<std::uint32_t, WorkerId>);
static_assert(!std::is_convertible_v<WorkerId, std::uint32_t>);
static_assert(!std::is_convertible_v<WorkerId, Incarnation>);

TEST_CASE("a default-constructed id stands for none") {
  CHECK_FALSE(ContextId{}.is_valid());
  CHECK_FALSE(RRefId{WorkerId{3}, Incarnation{7}, 0}.is_valid());
  CHECK(IdSource(WorkerId{0}, Incarnation{0}).next<ContextId>().is_valid());
}

TEST_CASE("an id says who made it and in which life") {
  IdSource source(WorkerId{70'000}, Incarnation{0xdeadbeef});
  auto const id = source.next<AutogradMessageId>();
  CHECK(id.worker == WorkerId{70'000});
  CHECK(id.incarnation == Incarnation{0xdeadbeef});
}

TEST_CASE("ids of different kinds from one source never repeat a number") {
  IdSource source(WorkerId{1}, Incarnation{2});
  auto const context = source.next<ContextId>();
  auto const fork = source.next<ForkId>();
  auto const second_context = source.next<ContextId>();
  CHECK(context.sequence != fork.sequence);
  CHECK(context < second_context);
}

TEST_CASE("threads that share a source get distinct ids") {
  constexpr int thread_count = 4, ids_each = 5'000;
  IdSource source(WorkerId{0}, Incarnation{0});
  std::vector<std::vector<RRefId>> drawn(thread_count);
  {
    std::vector<std::jthread> threads;
    for (auto& mine : drawn) {
      threads.emplace_back([&] {
        for (int i = 0; i < ids_each; ++i) mine.push_back(source.next<RRefId>());
      });
    }
  }
  std::set<RRefId> all;
  for (auto const& mine : drawn) {
    CHECK(std::is_sorted(mine.begin(), mine.end()));
    all.insert(mine.begin(), mine.end());
  }
  CHECK(all.size() == thread_count * ids_each);
}

TEST_CASE("ids made before and after a restart with the same rank differ") {
  auto const before = IdSource(WorkerId{5}, Incarnation{1}).next<ContextId>();
  auto const after = IdSource(WorkerId{5}, Incarnation{2}).next<ContextId>();
  CHECK(before != after);
  CHECK(before.sequence == after.sequence);
}

TEST_CASE("ids order by worker, then life, then counter") {
  auto id = [](unsigned worker, unsigned life, unsigned sequence) {
    return ContextId{WorkerId{worker}, Incarnation{life}, sequence};
  };
  CHECK(id(1, 9, 9) < id(2, 1, 1));
  CHECK(id(1, 1, 9) < id(1, 2, 1));
  CHECK(id(1, 1, 1) < id(1, 1, 2));
}

TEST_CASE("ids print as worker/life/counter and passes add who started them") {
  ContextId const context{WorkerId{2}, Incarnation{7}, 9};
  CHECK(to_string(WorkerId{4'000'000'000}) == "4000000000");
  CHECK(to_string(context) == "2/7/9");
  CHECK(to_string(PassId{context, WorkerId{3}, 1}) == "2/7/9@3#1");

  std::ostringstream out;
  out << WorkerId{1} << ' ' << CallId{12} << ' ' << context << ' ' << PassId{context, {}, 4};
  CHECK(out.str() == "1 12 2/7/9 2/7/9@0#4");
}

TEST_CASE("hashes spread ids that differ in one field only") {
  std::unordered_set<std::size_t> hashes;
  std::size_t count = 0;
  for (std::uint32_t worker = 0; worker < 20; ++worker) {
    for (std::uint32_t life = 0; life < 20; ++life) {
      for (std::uint64_t sequence = 1; sequence <= 20; ++sequence, ++count) {
        ContextId const id{WorkerId{worker}, Incarnation{life}, sequence};
        hashes.insert(std::hash<ContextId>()(id));
      }
    }
  }
  CHECK(hashes.size() == count);
}

TEST_CASE("equal passes hash alike, and every field of a pass counts") {
  PassId const pass{ContextId{WorkerId{1}, Incarnation{2}, 3}, WorkerId{4}, 5};
  PassId same = pass;
  CHECK(std::hash<PassId>()(same) == std::hash<PassId>()(pass));

  PassId other_context = pass, other_initiator = pass, other_sequence = pass;
  other_context.context.sequence = 4;
  other_initiator.initiator = WorkerId{5};
  other_sequence.sequence = 6;
  CHECK(std::unordered_set<PassId>{pass, same, other_context, other_initiator, other_sequence}
            .size() == 4);
}

}  // namespace ids_tests
