#include <distgrad/tensor/device_map.hpp>
//
#include <doctest/doctest.h>

#include <distgrad/core/error.hpp>

#include <ATen/ops/ones.h>

namespace device_map_tests {

namespace {
namespace device_maps {

using distgrad::DeviceMap;
using distgrad::DeviceMaps;
using distgrad::DeviceProfile;
using distgrad::DeviceRoutes;
using distgrad::errc;
using distgrad::Error;
using distgrad::PeerAddress;
using distgrad::WorkerId;

c10::Device cuda(int index) { return {c10::kCUDA, c10::DeviceIndex(index)}; }
c10::Device const cpu(c10::kCPU);

// A tensor of any device, without one: only its description is looked at.
at::Tensor meta() { return at::ones({2}, at::TensorOptions(c10::kMeta)); }

/// Workers w0, w1, ... with a number of cuda devices and maps each.
struct Group {
  struct Worker {
    int devices = 2;
    DeviceMaps maps = {};
  };
  std::vector<PeerAddress> addresses;

  explicit Group(std::vector<Worker> workers) {
    for (auto& worker : workers) {
      DeviceProfile profile;
      if (worker.devices > 0) profile.counts[c10::kCUDA] = worker.devices;
      profile.maps = std::move(worker.maps);
      auto const rank = std::uint32_t(addresses.size());
      addresses.push_back({{"w" + std::to_string(rank), WorkerId{rank}, {}}, "", profile.encode()});
    }
  }
  DeviceRoutes routes(std::uint32_t rank) const { return DeviceRoutes(WorkerId{rank}, addresses); }
  /// The error every worker gets; all must get the same.
  Error error() const {
    std::vector<Error> errors;
    for (std::uint32_t rank = 0; rank < addresses.size(); ++rank) {
      try {
        routes(rank);
      } catch (Error const& e) {
        errors.push_back(e);
      }
    }
    REQUIRE(errors.size() == addresses.size());
    for (auto const& e : errors) {
      CHECK(e.code() == errors[0].code());
      CHECK(e.text() == errors[0].text());
    }
    return errors[0];
  }
};

Error error_of(DeviceMap map, int devices_here = 2, int devices_there = 2) {
  return Group({{devices_here, {{"w1", std::move(map)}}}, {devices_there}}).error();
}

bool mentions(Error const& error, std::initializer_list<char const*> words) {
  for (auto const* word : words) {
    if (error.text().find(word) == std::string::npos) {
      MESSAGE(error.text() << " lacks " << word);
      return false;
    }
  }
  return true;
}

TEST_CASE("a device map is written as libtorch writes devices") {
  DeviceMap const map = {{"cuda:0", "cuda:1"}, {"cpu", "cuda:0"}, {cuda(1), cpu}};
  CHECK(map.there(cuda(0)) == cuda(1));
  CHECK(map.there(cpu) == cuda(0));
  CHECK(map.there(c10::Device(c10::kCPU, 0)) == cuda(0));
  CHECK(map.there(cuda(1)) == cpu);
  CHECK_FALSE(map.there(cuda(2)));
  CHECK(map.reversed().there(cuda(1)) == cuda(0));
  CHECK(map.reversed().there(cpu) == cuda(1));
  CHECK(DeviceMap().empty());
  for (auto const* bad : {"gpu:0", "cuda:x", "", "cuda:-2"}) {
    CAPTURE(bad);
    try {
      DeviceMap const wrong = {{bad, "cuda:0"}};
      FAIL("no error");
    } catch (Error const& e) {
      CHECK(e.code() == errc::invalid_argument);
      CHECK(mentions(e, {bad, "cuda:0"}));
    }
  }
}

TEST_CASE("a profile arrives as it was sent; a worker without devices and maps sends none") {
  CHECK(DeviceProfile().encode().empty());
  CHECK(DeviceProfile::decode("").maps.empty());
  DeviceProfile profile;
  profile.counts = {{c10::kCUDA, 2}, {c10::DeviceType::PrivateUse1, 1}};
  profile.maps = {{"w1", {{"cuda:0", "cuda:1"}, {"cpu", "cpu"}}}, {"w2", {}}};
  auto const text = profile.encode();
  auto const back = DeviceProfile::decode(text);
  CHECK(back.counts == profile.counts);
  CHECK(back.encode() == text);
  REQUIRE(back.maps.at("w1").entries().size() == 2);
  CHECK(back.maps.at("w1").there(cuda(0)) == cuda(1));
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    CAPTURE(cut);
    CHECK_THROWS_AS(DeviceProfile::decode(text.substr(0, cut)), Error);
  }
  CHECK_THROWS_AS(DeviceProfile::decode(text + "x"), Error);
}

TEST_CASE("[RPC-49] a device map is checked on every worker, with one outcome") {
  CHECK(error_of({{"cuda:2", "cuda:0"}}).code() == errc::invalid_argument);
  CHECK(mentions(error_of({{"cuda:2", "cuda:0"}}),
                 {"cuda:2 -> cuda:0", "device_maps[\"w1\"]", "worker 'w0' has no device cuda:2",
                  "its last is cuda:1"}));
  CHECK(mentions(error_of({{"cuda:0", "cuda:7"}}),
                 {"cuda:0 -> cuda:7", "device_maps[\"w1\"] of worker 'w0'",
                  "worker 'w1' has no device cuda:7", "its last is cuda:1"}));
  CHECK(mentions(error_of({{"cuda:0", "cuda:0"}}, 2, 0), {"worker 'w1' has no cuda device"}));
  CHECK(mentions(error_of({{"cuda:0", "cuda:0"}}, 0, 2), {"worker 'w0' has no cuda device"}));
  CHECK(mentions(error_of({{"cuda", "cuda:0"}}), {"by its index", "\"cuda:0\""}));
  CHECK(mentions(error_of({{"meta", "cuda:0"}}), {"index"}));
  CHECK(mentions(error_of({{"cuda:0", "cuda:1"}, {"cuda:0", "cuda:0"}}),
                 {"cuda:0 -> cuda:0", "maps the same device"}));
  CHECK(mentions(error_of({{"cuda:0", "cuda:1"}, {"cuda:1", "cuda:1"}}),
                 {"cuda:1 -> cuda:1", "maps to the same device"}));
  auto const nobody = Group({{2, {{"ps0", {{"cuda:0", "cuda:0"}}}}}, {2}}).error();
  CHECK(nobody.code() == errc::unknown_worker);
  CHECK(mentions(nobody, {"device_maps[\"ps0\"] of worker 'w0'", "not in the group"}));
}

TEST_CASE("devices of one worker may be crossed, and mixed with the host") {
  Group const group({{2, {{"w1", {{"cuda:0", "cuda:1"}, {"cuda:1", "cuda:0"}}}}}, {2}, {0}});
  CHECK(group.routes(0).devices() == std::vector{cuda(0), cuda(1)});
  CHECK(group.routes(1).devices().size() == 2);
  CHECK(group.routes(2).devices().empty());
  Group const mixed({{2, {{"w1", {{"cpu", "cuda:1"}, {"cuda:1", "cpu"}}}}}, {2}});
  CHECK(mixed.routes(0).devices() == std::vector{cuda(1)});
  CHECK(mixed.routes(1).devices() == std::vector{cuda(1)});
}

TEST_CASE("a worker maps to itself, too") {
  Group const group({{2, {{"w0", {{"cuda:0", "cuda:1"}}}}}, {0}});
  CHECK(group.routes(0).devices() == std::vector{cuda(0), cuda(1)});
}

TEST_CASE("tensors of the host need no map") {
  Group const group({{0}, {0}});
  std::vector<at::Tensor> const tensors = {at::ones({2}), at::Tensor(), at::ones({3})};
  CHECK(group.routes(0).destinations(WorkerId{1}, true, tensors).empty());
  CHECK(group.routes(0).destinations(WorkerId{1}, false, tensors).empty());
  CHECK(DeviceRoutes().destinations(WorkerId{1}, true, tensors).empty());
}

TEST_CASE("arguments go by the caller's map, results back by its reverse") {
  Group const group({{2, {{"w1", {{"cpu", "cuda:1"}}}}}, {2}});
  std::vector<at::Tensor> const tensors = {at::Tensor(), at::ones({2})};
  auto const there = group.routes(0).destinations(WorkerId{1}, true, tensors);
  CHECK(there == std::vector{cpu, cuda(1)});
  CHECK(group.routes(1).destinations(WorkerId{0}, false, tensors).empty());
  // w1 has no map of its own for what it calls on w0.
  CHECK(group.routes(1).destinations(WorkerId{0}, true, tensors).empty());
}

TEST_CASE("[RPC-51] a tensor whose device is not mapped names device, peer and option") {
  Group const group({{2}, {2}});
  std::vector<at::Tensor> const tensors = {at::ones({2}), meta()};
  auto const refused = [&](std::uint32_t rank, std::uint32_t to, bool is_call) {
    try {
      group.routes(rank).destinations(WorkerId{to}, is_call, tensors);
    } catch (Error const& e) {
      CHECK(e.code() == errc::unsupported_tensor);
      return e;
    }
    return Error(errc::internal);
  };
  CHECK(mentions(refused(0, 1, true),
                 {"device meta", "worker 'w1'", "device_maps[\"w1\"] of worker 'w0'", "cpu()"}));
  CHECK(mentions(refused(1, 0, false), {"result", "device meta", "worker 'w0'",
                                        "device_maps[\"w1\"] of worker 'w0'", "cpu()"}));
}

TEST_CASE("a peer may use those devices only that a map between the two names") {
  Group const group({{2, {{"w1", {{"cuda:0", "cuda:1"}}}}}, {2}, {2}});
  auto const accepted = [&](std::uint32_t rank, std::uint32_t from, c10::Device device) {
    try {
      group.routes(rank).require_accepted(WorkerId{from}, {&device, 1});
      return true;
    } catch (Error const& e) {
      CHECK(e.code() == errc::bad_value);
      return false;
    }
  };
  CHECK(accepted(1, 0, cuda(1)));
  CHECK_FALSE(accepted(1, 0, cuda(0)));
  CHECK(accepted(0, 1, cuda(0)));
  CHECK_FALSE(accepted(0, 1, cuda(1)));
  CHECK_FALSE(accepted(1, 2, cuda(1)));
  CHECK_FALSE(accepted(1, 99, cuda(1)));
  CHECK(accepted(1, 2, cpu));
}

TEST_CASE("devices on the wire are checked") {
  distgrad::Writer out;
  distgrad::write_devices(out, std::vector{cuda(1), cpu});
  auto const bytes = out.bytes();
  distgrad::Reader in(bytes);
  CHECK(distgrad::read_devices(in, 2) == std::vector{cuda(1), cpu});
  CHECK(in.at_end());
  distgrad::Reader more(bytes);
  CHECK_THROWS_AS(distgrad::read_devices(more, 3), Error);
  std::vector<std::byte> const wrong = {std::byte{120}, std::byte{0}};
  distgrad::Reader bad(wrong);
  CHECK_THROWS_AS(distgrad::read_devices(bad, 1), Error);
}

}  // namespace device_maps
}  // namespace

}  // namespace device_map_tests
