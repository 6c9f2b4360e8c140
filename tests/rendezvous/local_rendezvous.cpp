#include <distgrad/rendezvous/local_rendezvous.hpp>

#include <future>
#include <vector>

#include <doctest/doctest.h>

namespace local_rendezvous_tests {

namespace {

using namespace distgrad;

PeerAddress worker(std::uint32_t rank, std::string name) {
  return {{name, WorkerId{rank}, Incarnation{1}}, name, "devices of " + name};
}

std::future<errc> exchange(std::shared_ptr<LocalMeetingPoint> meeting, PeerAddress self,
                           std::uint32_t world_size, milliseconds timeout = milliseconds(30000)) {
  return std::async(std::launch::async, [=] {
    try {
      auto const group =
          LocalRendezvous(meeting).exchange(self, world_size, Deadline::after(timeout));
      return group.size() == world_size && group[self.info.id.value] == self ? errc{}
                                                                             : errc::internal;
    } catch (Error const& error) {
      return static_cast<errc>(error.code().value());
    }
  });
}

}  // namespace

TEST_CASE("workers of one process find each other") {
  auto const meeting = std::make_shared<LocalMeetingPoint>();
  std::vector<std::future<errc>> all;
  for (std::uint32_t rank = 0; rank < 5; ++rank) {
    all.push_back(exchange(meeting, worker(rank, "w" + std::to_string(rank)), 5));
  }
  for (auto& one : all) CHECK(one.get() == errc{});
}

TEST_CASE("a clash in one process reaches every worker") {
  auto const meeting = std::make_shared<LocalMeetingPoint>();
  auto first = exchange(meeting, worker(0, "a"), 3);
  auto second = exchange(meeting, worker(1, "a"), 3);
  CHECK(first.get() == errc::duplicate_name);
  CHECK(second.get() == errc::duplicate_name);
  CHECK(exchange(meeting, worker(2, "c"), 3).get() == errc::duplicate_name);
}

TEST_CASE("a worker that is missing in one process ends the wait at the deadline") {
  auto const meeting = std::make_shared<LocalMeetingPoint>();
  CHECK(exchange(meeting, worker(0, "a"), 2, milliseconds(20)).get() == errc::timeout);
  CHECK_THROWS_AS(LocalRendezvous().exchange(worker(0, "a"), 0, Deadline::never()), Error);
}

TEST_CASE("a group of one in one process is complete at once") {
  auto const group = LocalRendezvous().exchange(worker(0, "a"), 1, Deadline::never());
  CHECK(group == std::vector{worker(0, "a")});
}

}  // namespace local_rendezvous_tests
