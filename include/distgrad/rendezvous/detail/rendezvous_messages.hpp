#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <distgrad/rendezvous/detail/registration_table.hpp>
#include <distgrad/wire/error_frame.hpp>
#include <distgrad/wire/frame.hpp>
#include <distgrad/wire/secret.hpp>

// What workers and rank 0 tell each other, without I/O: `hello` with a registration one way, then
// `welcome` with the group or `goodbye` with an error the other way. Each is a frame without
// buffers.
namespace distgrad::detail {

/// Most that a worker may say of its devices: maps for some thousand peers.
inline constexpr std::size_t max_devices_bytes = 56 << 10;
/// All that rank 0 reads from a stranger.
inline constexpr FrameLimits registration_limits{64 << 10, 0, 0};
/// All that a worker reads from what it takes for rank 0.
inline constexpr FrameLimits answer_limits{std::uint64_t{64} << 20, 0, 0};

/// Tells a rendezvous from the first frame of a transport.
inline constexpr std::uint32_t rendezvous_tag = 0x5a564452;

inline std::vector<std::byte> rendezvous_frame(FrameKind kind, Writer&& body) {
  auto metadata = body.take();
  auto const header = encode_frame_header({kind, 0, 0, {}, metadata.size(), 0});
  metadata.insert(metadata.begin(), header.begin(), header.end());
  return metadata;
}

inline void write_peer(Writer& out, PeerAddress const& peer) {
  out.id(peer.info.id);
  out.number(peer.info.incarnation.value);
  out.text(std::string_view(peer.info.name).substr(0, 2 * max_worker_name_characters));
  out.text(std::string_view(peer.endpoint).substr(0, 4096));
  out.text(peer.devices);
}

inline PeerAddress read_peer(Reader& in) {
  PeerAddress peer;
  peer.info.id = in.id<WorkerId>();
  peer.info.incarnation.value = in.number<std::uint32_t>();
  peer.info.name = in.text();
  peer.endpoint = in.text();
  peer.devices = in.text();
  return peer;
}

inline std::vector<std::byte> encode_registration(Registration const& r, std::string_view secret) {
  Writer out;
  out.number(rendezvous_tag);
  out.text(secret);
  out.number(r.world_size);
  write_peer(out, r.self);
  return rendezvous_frame(FrameKind::hello, std::move(out));
}

/// @return `bad_message` or `bad_secret`; nothing else is looked at without the secret.
inline error_code decode_registration(FrameHeader const& header,
                                      std::span<std::byte const> metadata, std::string_view secret,
                                      Registration& registration) {
  Reader in(metadata);
  auto const tag = in.number<std::uint32_t>();
  auto const theirs = in.text_view();
  if (header.kind != FrameKind::hello || tag != rendezvous_tag || !in.ok()) {
    return errc::bad_message;
  }
  if (!is_same_secret(secret, theirs)) return errc::bad_secret;
  registration.world_size = in.number<std::uint32_t>();
  registration.self = read_peer(in);
  return in.ok() && in.at_end() ? error_code() : make_error_code(errc::bad_message);
}

inline std::vector<std::byte> encode_group(std::vector<PeerAddress> const& group) {
  Writer out;
  out.number<std::uint64_t>(group.size());
  for (auto const& peer : group) write_peer(out, peer);
  return rendezvous_frame(FrameKind::welcome, std::move(out));
}

inline std::vector<std::byte> encode_problem(ErrorReport const& problem) {
  Writer out;
  write_error(out, {problem.code, {}, {}, {}, problem.text});
  return rendezvous_frame(FrameKind::goodbye, std::move(out));
}

/// Rank 0's answer: a group or an error, or neither when it is malformed.
struct RendezvousAnswer {
  std::vector<PeerAddress> group;
  std::optional<WireError> error;
};

inline std::optional<RendezvousAnswer> decode_answer(FrameHeader const& header,
                                                     std::span<std::byte const> metadata,
                                                     std::uint32_t world_size) {
  Reader in(metadata);
  RendezvousAnswer answer;
  if (header.kind == FrameKind::goodbye) {
    answer.error = read_error(in);
  } else if (header.kind == FrameKind::welcome) {
    auto const count = in.count(16);
    for (std::size_t i = 0; i < count && in.ok(); ++i) answer.group.push_back(read_peer(in));
    if (count != world_size) in.fail();
    for (std::size_t i = 0; i < answer.group.size(); ++i) {
      if (answer.group[i].info.id.value != i) in.fail();
    }
  } else {
    in.fail();
  }
  if (!in.ok() || !in.at_end()) return std::nullopt;
  return answer;
}

}  // namespace distgrad::detail
