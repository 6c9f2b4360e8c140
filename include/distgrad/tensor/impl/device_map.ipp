#pragma once
#include <algorithm>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <distgrad/core/error.hpp>
#include <distgrad/tensor/device_map.hpp>

namespace distgrad {
namespace detail {

inline c10::Device parse_device(std::string const& text) try {
  return c10::Device(text);
} catch (c10::Error const&) {
  throw Error(errc::invalid_argument,
              "'" + text + "' is no device; write a type and an index, as in \"cuda:0\"");
}

/// The host's memory is one device, whether it is called cpu or cpu:0.
inline c10::Device plain(c10::Device device) {
  return device.is_cpu() ? c10::Device(c10::kCPU) : device;
}

inline void write_device(Writer& out, c10::Device device) {
  out.number(static_cast<std::int8_t>(device.type()));
  out.number(static_cast<std::int8_t>(device.index()));
}

/// Any numbers: what they name is checked where it is used.
inline c10::Device read_device_of_map(Reader& in) {
  auto const type = in.number<std::int8_t>();
  auto const index = in.number<std::int8_t>();
  if (type < 0 || type >= static_cast<int>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES) ||
      index < -1) {
    in.fail();
    return c10::kCPU;
  }
  // libtorch does not even make a host device of another index.
  return type == 0 ? c10::Device(c10::kCPU)
                   : c10::Device(static_cast<c10::DeviceType>(type), index);
}

/// "cuda:0 -> cuda:1 in EngineOptions::device_maps["ps0"] of worker 'trainer'"
inline std::string entry_text(std::string const& owner, std::string const& peer,
                              DeviceMap::Entry const& entry) {
  return entry.here.str() + " -> " + entry.there.str() + " in EngineOptions::device_maps[\"" +
         peer + "\"] of worker '" + owner + "'";
}

[[noreturn]] inline void bad_entry(std::string const& owner, std::string const& peer,
                                   DeviceMap::Entry const& entry, std::string const& why) {
  throw Error(errc::invalid_argument, entry_text(owner, peer, entry) + ": " + why);
}

/// "worker 'ps0' has 2 cuda devices, 0 and 1"; what is wrong with `device` there.
inline std::string lack_text(std::string const& worker, DeviceProfile const& profile,
                             c10::Device device) {
  if (!device.has_index()) return "name a device by its index, as in \"" + device.str() + ":0\"";
  auto const at = profile.counts.find(device.type());
  auto const count = at == profile.counts.end() ? 0 : at->second;
  auto const type = c10::DeviceTypeName(device.type(), true);
  if (count == 0) return "worker '" + worker + "' has no " + type + " device; leave the entry out";
  return "worker '" + worker + "' has no device " + device.str() + ", its last is " + type + ":" +
         std::to_string(count - 1);
}

inline void check_one_to_one(std::string const& owner, std::string const& peer,
                             DeviceMap const& map) {
  auto const& entries = map.entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (entries[i].here == entries[j].here) {
        bad_entry(owner, peer, entries[i],
                  "another entry maps the same device; a device goes to one of the peer's");
      }
      if (entries[i].there == entries[j].there) {
        bad_entry(owner, peer, entries[i],
                  "another entry maps to the same device, so that results would not know which to "
                  "come back to; map one to one");
      }
    }
  }
}

inline void check_map(std::string const& owner, DeviceProfile const& own, std::string const& peer,
                      DeviceProfile const& theirs, DeviceMap const& map) {
  for (auto const& entry : map.entries()) {
    if (!own.has(entry.here)) bad_entry(owner, peer, entry, lack_text(owner, own, entry.here));
    if (!theirs.has(entry.there)) {
      bad_entry(owner, peer, entry, lack_text(peer, theirs, entry.there));
    }
  }
  check_one_to_one(owner, peer, map);
}

inline std::vector<DeviceProfile> profiles_of(std::span<PeerAddress const> group) {
  std::vector<DeviceProfile> profiles;
  for (auto const& worker : group) profiles.push_back(DeviceProfile::decode(worker.devices));
  return profiles;
}

inline std::size_t find_by_name(std::span<PeerAddress const> group, std::string const& name) {
  auto const at = std::ranges::find(group, name, [](auto const& w) { return w.info.name; });
  return static_cast<std::size_t>(at - group.begin());
}

}  // namespace detail

DISTGRAD_DECL DeviceMap::Entry::Entry(std::string const& from, std::string const& to)
    : Entry(detail::parse_device(from), detail::parse_device(to)) {}

DISTGRAD_DECL std::optional<c10::Device> DeviceMap::there(c10::Device here) const {
  for (auto const& entry : entries_) {
    if (detail::plain(entry.here) == detail::plain(here)) return entry.there;
  }
  return std::nullopt;
}

DISTGRAD_DECL DeviceMap DeviceMap::reversed() const {
  DeviceMap other;
  for (auto const& entry : entries_) other.add(entry.there, entry.here);
  return other;
}

// --- what a worker says of itself ----------------------------------------------------------------

DISTGRAD_DECL DeviceProfile DeviceProfile::of(DeviceMaps maps) {
  DeviceProfile profile;
  profile.maps = std::move(maps);
  constexpr auto types = static_cast<int>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);
  for (int i = 0; i < types; ++i) {
    auto const type = static_cast<c10::DeviceType>(i);
    if (type == c10::kCPU || type == c10::kMeta || !c10::impl::hasDeviceGuardImpl(type)) continue;
    if (int const n = c10::impl::getDeviceGuardImpl(type)->deviceCount()) profile.counts[type] = n;
  }
  return profile;
}

DISTGRAD_DECL std::string DeviceProfile::encode() const {
  if (counts.empty() && maps.empty()) return {};
  Writer out;
  out.number(std::uint64_t{counts.size()});
  for (auto const& [type, count] : counts) {
    out.number(static_cast<std::int8_t>(type));
    out.number(static_cast<std::int32_t>(count));
  }
  out.number(std::uint64_t{maps.size()});
  for (auto const& [peer, map] : maps) {
    out.text(peer);
    out.number(std::uint64_t{map.entries().size()});
    for (auto const& entry : map.entries()) {
      detail::write_device(out, entry.here);
      detail::write_device(out, entry.there);
    }
  }
  auto const bytes = out.take();
  return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

DISTGRAD_DECL DeviceProfile DeviceProfile::decode(std::string_view text) {
  DeviceProfile profile;
  if (text.empty()) return profile;
  Reader in(std::as_bytes(std::span(text.data(), text.size())));
  for (auto n = in.count(5); n > 0; --n) {
    auto const type = static_cast<c10::DeviceType>(in.number<std::int8_t>());
    profile.counts[type] = in.number<std::int32_t>();
  }
  for (auto n = in.count(12); n > 0; --n) {
    auto& map = profile.maps[in.text()];
    for (auto entries = in.count(4); entries > 0; --entries) {
      auto const here = detail::read_device_of_map(in);
      map.add(here, detail::read_device_of_map(in));
    }
  }
  if (!in.ok() || !in.at_end()) {
    throw Error(errc::bad_message, "what a worker says of its devices is malformed");
  }
  return profile;
}

DISTGRAD_DECL bool DeviceProfile::has(c10::Device device) const {
  if (device.is_cpu()) return true;
  auto const at = counts.find(device.type());
  return device.has_index() && at != counts.end() && device.index() < at->second;
}

// --- routes --------------------------------------------------------------------------------------

DISTGRAD_DECL DeviceRoutes::DeviceRoutes(WorkerId self, std::span<PeerAddress const> group)
    : self_(group[self.value].info.name), self_id_(self) {
  auto const profiles = detail::profiles_of(group);
  for (auto const& worker : group) peers_.push_back({worker.info.name, {}, {}});
  for (std::size_t owner = 0; owner < group.size(); ++owner) {
    auto const& name = group[owner].info.name;
    for (auto const& [peer, map] : profiles[owner].maps) {
      auto const at = detail::find_by_name(group, peer);
      if (at == group.size()) {
        throw Error(errc::unknown_worker, "EngineOptions::device_maps[\"" + peer +
                                              "\"] of worker '" + name +
                                              "' is for a worker that is not in the group");
      }
      detail::check_map(name, profiles[owner], peer, profiles[at], map);
      if (owner == self.value) peers_[at].arguments = map;
      if (at == self.value) peers_[owner].results = map.reversed();
    }
  }
  for (auto const& peer : peers_) {
    for (auto const& entry : peer.arguments.entries()) use(entry.here);
    for (auto const& entry : peer.results.entries()) use(entry.here);
  }
}

DISTGRAD_DECL void DeviceRoutes::use(c10::Device device) {
  if (device.is_cpu() || std::ranges::count(devices_, device) != 0) return;
  devices_.push_back(device);
}

DISTGRAD_DECL c10::Device DeviceRoutes::destination(WorkerId to, bool is_call,
                                                    c10::Device here) const {
  auto const* const peer = to.value < peers_.size() ? &peers_[to.value] : nullptr;
  if (peer) {
    auto const there = (is_call ? peer->arguments : peer->results).there(here);
    if (there) return *there;
  }
  if (here.is_cpu() || to == self_id_ || !peer) return here;
  auto const option = [](std::string const& of, std::string const& with) {
    return "no entry of EngineOptions::device_maps[\"" + with + "\"] of worker '" + of + "' ";
  };
  auto const text = is_call ? "a tensor on device " + here.str() + " cannot go to worker '" +
                                  peer->name + "': " + option(self_, peer->name) +
                                  "says to which device; add one, or send cpu() of the tensor"
                            : "a result on device " + here.str() + " of worker '" + self_ +
                                  "' cannot go to worker '" + peer->name +
                                  "': " + option(peer->name, self_) +
                                  "leads to that device; add one, or return cpu() of the tensor";
  throw Error(errc::unsupported_tensor, text);
}

DISTGRAD_DECL std::vector<c10::Device> DeviceRoutes::destinations(
    WorkerId to, bool is_call, std::span<at::Tensor const> tensors) const {
  std::vector<c10::Device> devices;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    auto const there = destination(to, is_call, tensors[i].device());
    if (there.is_cpu()) continue;
    devices.resize(tensors.size(), c10::kCPU);
    devices[i] = there;
  }
  return devices;
}

DISTGRAD_DECL void DeviceRoutes::require_accepted(WorkerId peer,
                                                  std::span<c10::Device const> devices) const {
  if (peer == self_id_) return;
  for (auto const device : devices) {
    if (device.is_cpu()) continue;
    bool const known = peer.value < peers_.size() && (peers_[peer.value].arguments.there(device) ||
                                                      peers_[peer.value].results.there(device));
    if (!known) {
      throw Error(errc::bad_value, "a tensor came for device " + device.str() +
                                       ", which no device map between the two workers names");
    }
  }
}

DISTGRAD_DECL void write_devices(Writer& out, std::span<c10::Device const> devices) {
  for (auto const device : devices) detail::write_device(out, device);
}

DISTGRAD_DECL std::vector<c10::Device> read_devices(Reader& in, std::size_t count) {
  std::vector<c10::Device> devices;
  for (std::size_t i = 0; i < count; ++i) devices.push_back(detail::read_device_of_map(in));
  if (!in.ok()) throw Error(errc::bad_value, "the devices of a message's tensors are malformed");
  return devices;
}

}  // namespace distgrad
