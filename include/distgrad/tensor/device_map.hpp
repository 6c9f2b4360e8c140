#pragma once
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <distgrad/config.hpp>
#include <distgrad/core/peer_address.hpp>
#include <distgrad/wire/reader.hpp>
#include <distgrad/wire/writer.hpp>

namespace distgrad {

/// Whether its elements are elsewhere than in the host's memory.
inline bool is_on_device(at::Tensor const& tensor) {
  return tensor.defined() && !tensor.device().is_cpu();
}

/// To which device of one peer the tensors of each device here go, one to one. Results come back
/// the other way. What no entry names cannot be sent, but for the host's memory, which goes to the
/// host's.
///
///     options.device_maps["ps0"] = {{"cuda:0", "cuda:1"}, {"cuda:1", "cuda:0"}};
/// @threads distinct objects.
class DeviceMap {
 public:
  struct Entry {
    Entry(c10::Device from, c10::Device to) : here(from), there(to) {}
    /// @param from, to as libtorch writes devices: "cuda:0", "cpu".
    /// @throws Error `errc::invalid_argument` for anything else.
    Entry(std::string const& from, std::string const& to);

    c10::Device here, there;
  };

  DeviceMap() = default;
  DeviceMap(std::initializer_list<Entry> entries) : entries_(entries) {}
  void add(c10::Device here, c10::Device there) { entries_.push_back({here, there}); }

  std::vector<Entry> const& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  /// The device there that `here` goes to, if an entry names it.
  std::optional<c10::Device> there(c10::Device here) const;
  /// The same map as the peer sees it.
  DeviceMap reversed() const;

 private:
  std::vector<Entry> entries_;
};

/// The device maps of a worker, by the names of its peers.
using DeviceMaps = std::map<std::string, DeviceMap>;

/// What a worker tells the group about its devices when it joins.
struct DeviceProfile {
  /// How many devices of each type it has, apart from the host.
  std::map<c10::DeviceType, int> counts;
  DeviceMaps maps;

  /// This process's devices.
  static DeviceProfile of(DeviceMaps maps);
  /// As `PeerAddress::devices`: empty for a worker that has neither.
  std::string encode() const;
  /// @throws Error `errc::bad_message`.
  static DeviceProfile decode(std::string_view text);

  bool has(c10::Device device) const;
};

/// Where the tensors of messages between this worker and its peers belong.
/// @threads safe: shared object.
class DeviceRoutes {
 public:
  /// Every tensor is in the host's memory.
  DeviceRoutes() = default;
  /// Checks the maps of the whole group, with the same outcome on every worker.
  /// @throws Error `errc::unknown_worker` if a map is for nobody in the group,
  /// `errc::invalid_argument` if two entries of a map share a device or a worker does not have a
  /// device that is named; the text says whose map, which entry, and what to do.
  DeviceRoutes(WorkerId self, std::span<PeerAddress const> group);

  /// The devices of `to` for the tensors of a call, or of an answer to one of its calls; empty if
  /// each is the host.
  /// @throws Error `errc::unsupported_tensor`, naming the device, the peer and the option.
  std::vector<c10::Device> destinations(WorkerId to, bool is_call,
                                        std::span<at::Tensor const> tensors) const;
  /// @throws Error `errc::bad_value` if `peer` has no business to put tensors on these devices.
  void require_accepted(WorkerId peer, std::span<c10::Device const> devices) const;
  /// Devices of this worker, apart from the host, that tensors come from or go to.
  std::vector<c10::Device> const& devices() const { return devices_; }

 private:
  struct Peer {
    std::string name;
    DeviceMap arguments;  // by this worker's map for it
    DeviceMap results;    // by its map for this worker, reversed
  };
  void use(c10::Device device);
  c10::Device destination(WorkerId to, bool is_call, c10::Device here) const;

  std::string self_;
  WorkerId self_id_;
  std::vector<Peer> peers_;
  std::vector<c10::Device> devices_;
};

/// One `i8` type and one `i8` index each.
DISTGRAD_DECL void write_devices(Writer& out, std::span<c10::Device const> devices);
/// @throws Error `errc::bad_value`.
DISTGRAD_DECL std::vector<c10::Device> read_devices(Reader& in, std::size_t count);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/tensor/impl/device_map.ipp>
#endif
