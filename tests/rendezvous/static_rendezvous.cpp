#include <distgrad/rendezvous/static_rendezvous.hpp>

#include <doctest/doctest.h>

namespace static_rendezvous_tests {

namespace {

using namespace distgrad;

PeerAddress worker(std::uint32_t rank, std::string name, std::uint32_t incarnation = 0) {
  return {{name, WorkerId{rank}, Incarnation{incarnation}}, name + ":1"};
}

errc error_of(StaticRendezvous& rendezvous, PeerAddress self, std::uint32_t world_size) {
  try {
    rendezvous.exchange(std::move(self), world_size, Deadline::never());
  } catch (Error const& error) {
    return static_cast<errc>(error.code().value());
  }
  return {};
}

}  // namespace

TEST_CASE("a static list is returned by rank, with the caller's own incarnation") {
  StaticRendezvous rendezvous({worker(1, "b"), worker(0, "a")});
  auto const group = rendezvous.exchange(worker(1, "b", 77), 2, Deadline::never());
  CHECK(group == std::vector{worker(0, "a"), worker(1, "b", 77)});
}

TEST_CASE("what a worker says of its devices replaces what the list says") {
  auto first = worker(0, "a"), second = worker(1, "b");
  first.devices = "devices of a";
  StaticRendezvous rendezvous({first, second});
  auto self = second;
  self.devices = "devices of b";
  auto const group = rendezvous.exchange(self, 2, Deadline::never());
  CHECK(group[0].devices == "devices of a");
  CHECK(group[1].devices == "devices of b");
}

TEST_CASE("a static list that contradicts the caller or itself is an error") {
  StaticRendezvous rendezvous({worker(0, "a"), worker(1, "b")});
  CHECK(error_of(rendezvous, worker(0, "a"), 3) == errc::world_size_mismatch);
  CHECK(error_of(rendezvous, worker(0, "b"), 2) == errc::invalid_argument);
  CHECK(error_of(rendezvous, worker(5, "a"), 2) == errc::invalid_argument);
  StaticRendezvous twice({worker(0, "a"), worker(1, "a")});
  CHECK(error_of(twice, worker(0, "a"), 2) == errc::duplicate_name);
  StaticRendezvous same_rank({worker(0, "a"), worker(0, "b")});
  CHECK(error_of(same_rank, worker(0, "a"), 2) == errc::duplicate_rank);
}

}  // namespace static_rendezvous_tests
