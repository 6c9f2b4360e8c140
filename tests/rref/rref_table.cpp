#include <distgrad/rref/rref_table.hpp>

#include "table_group.hpp"

namespace rref_table_tests {

using namespace table_group;

namespace {

int doubled_number(int x) { return 2 * x; }
int no_number(int) { throw std::runtime_error("no number"); }

}  // namespace

TEST_CASE("a local value is owned until its last handle goes, and needs no message") {
  Group group;
  auto& table = *group[0].table;
  auto handle = table.make_local(ErasedValue::of(std::make_shared<int>(4)));
  auto copy = handle;
  CHECK(table.owned() == 1);
  CHECK(table.forks() == 0);
  CHECK(handle->is_owner());
  CHECK(table.find_local(handle->id()) == handle->local());
  handle = nullptr;
  CHECK(table.owned() == 1);
  auto const id = copy->id();
  copy = nullptr;
  CHECK(group[0].host->sent.empty());
  CHECK(error_of([&] { table.find_local(id); }) == errc::rref_deleted);
  CHECK(group.holds_nothing());
}

TEST_CASE("a created value is pending until its owner answered, and freed after its last user") {
  Group group;
  {
    auto const value = distgrad::detail::create_remote<doubled_number>(*group[0].table, 1, 21);
    CHECK(group[0].table->pending_users() == 1);
    CHECK_FALSE(group[0].table->is_quiet());
    CHECK_FALSE(value.is_confirmed());
    group.settle();
    CHECK(group[0].table->pending_users() == 0);
    CHECK(value.is_confirmed());
    CHECK(group[1].table->owned() == 1);
    CHECK(group[1].table->forks() == 1);
  }
  CHECK(group[1].table->owned() == 1);  // the news is on its way
  group.settle();
  CHECK(group.holds_nothing());
}

TEST_CASE("a user that goes before its value was made leaves nothing behind") {
  Group group;
  distgrad::detail::create_remote<doubled_number>(*group[0].table, 1, 21);
  group.settle();
  CHECK(group.holds_nothing());
}

TEST_CASE("a reference on its way keeps the value alive, and is confirmed by the owner") {
  Group group;
  auto value = distgrad::detail::create_remote<doubled_number>(*group[0].table, 1, 21);
  auto const data = group[0].table->share(value.handle(), WorkerId{2});
  value = {};
  group.settle();
  CHECK(group[1].table->owned() == 1);  // its message did not arrive yet
  std::optional<Future<void>> confirmed;
  auto handle = group[2].table->receive(data, confirmed);
  REQUIRE(confirmed);
  CHECK_FALSE(confirmed->is_ready());
  CHECK_FALSE(group[2].table->is_confirmed(*handle));
  group.settle();
  CHECK(confirmed->is_ready());
  CHECK(group[2].table->is_confirmed(*handle));
  CHECK(group[1].table->forks() == 1);
  handle = nullptr;
  group.settle();
  CHECK(group.holds_nothing());
}

TEST_CASE("a share that is taken back keeps nothing alive") {
  Group group;
  auto value = distgrad::detail::create_remote<doubled_number>(*group[0].table, 1, 21);
  auto const data = group[0].table->share(value.handle(), WorkerId{2});
  group[0].table->share_undelivered(data);
  value = {};
  group.settle();
  CHECK(group.holds_nothing());
}

TEST_CASE("a lost owner fails its users, now and later") {
  Group group;
  auto const value = distgrad::detail::create_remote<doubled_number>(*group[0].table, 1, 21);
  group.settle();
  group[0].agent.dispatcher().on_peer_lost(WorkerId{1}, errc::peer_lost);
  CHECK(error_of([&] { group[0].table->require_usable(value.handle()); }) ==
        errc::rref_creation_failed);
  CHECK(error_of([&] { group[0].table->share(value.handle(), WorkerId{2}); }) ==
        errc::rref_creation_failed);
  CHECK(group[0].table->is_quiet());
}

TEST_CASE("a lost user's references are dropped by the owner") {
  Group group;
  auto const value = distgrad::detail::create_remote<doubled_number>(*group[0].table, 1, 21);
  group.settle();
  CHECK(group[1].table->owned() == 1);
  group[1].agent.dispatcher().on_peer_lost(WorkerId{0}, errc::peer_lost);
  CHECK(group[1].table->owned() == 0);
  CHECK(group[1].table->forks() == 0);
}

TEST_CASE("control messages that are cut off, and fetches of nothing, do no harm") {
  Group group;
  auto const value = distgrad::detail::create_remote<doubled_number>(*group[0].table, 1, 21);
  group.settle();
  auto& dispatcher = group[1].agent.dispatcher();
  for (auto kind :
       {FrameKind::rref_create, FrameKind::rref_fork_request, FrameKind::rref_child_accept,
        FrameKind::rref_user_delete, FrameKind::rref_ack, FrameKind::rref_fetch}) {
    for (std::size_t bytes : {0u, 1u, 40u, 79u}) {
      Message message{.kind = kind, .call = CallId{77}};
      message.metadata.resize(bytes);
      dispatcher.on_message(WorkerId{2}, std::move(message));
    }
  }
  group.settle();
  CHECK(group[1].table->owned() == 1);
  CHECK(value.async_to_here().is_valid());
  group.settle();
}

TEST_CASE("a closed table ends what waits for it, and refuses the rest") {
  Group group;
  auto const far = distgrad::detail::create_remote<doubled_number>(*group[0].table, 1, 21);
  auto const near = distgrad::detail::create_remote<doubled_number>(*group[0].table, 0, 21);
  CHECK_FALSE(near.handle().local()->value().is_ready());
  group[0].agent.caller().close();
  group[0].table->close();
  REQUIRE(near.handle().local()->value().is_ready());  // its function never ran
  CHECK(error_of([&] { near.local_value(); }) == errc::closed);
  CHECK(error_of([&] { group[0].table->require_usable(far.handle()); }) == errc::closed);
  CHECK(error_of([&] { group[0].table->agent(); }) == errc::closed);
  CHECK(error_of([&] { group[0].table->find_local(near.id()); }) == errc::closed);
  group.settle();  // messages that still arrive find nobody, and break nothing
}

TEST_CASE("a value that could not be made still counts while somebody refers to it") {
  Group group;
  {
    auto const value = distgrad::detail::create_remote<no_number>(*group[0].table, 1, 21);
    group.settle();
    CHECK(value.is_confirmed());
    CHECK(group[1].table->owned() == 1);
  }
  group.settle();
  CHECK(group.holds_nothing());
}

}  // namespace rref_table_tests
