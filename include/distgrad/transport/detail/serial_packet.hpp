#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <distgrad/transport/concept.hpp>
#include <distgrad/version.hpp>
#include <distgrad/wire/reader.hpp>
#include <distgrad/wire/secret.hpp>
#include <distgrad/wire/writer.hpp>

// The packets of a serial line. Their bytes: docs/policies/transport.md.
namespace distgrad::detail {

enum class SerialPacketKind : std::uint8_t {
  hello = 1,  ///< who is there
  data = 2,   ///< a piece of the stream
  ack = 3,    ///< what has arrived
  gap = 4,    ///< what has arrived, and that a later piece came instead of the next
};

/// A packet other than hello. Both ends' session numbers tell it from packets of other lives.
struct SerialPacket {
  SerialPacketKind kind{};
  std::uint32_t from_session = 0, to_session = 0;
  /// Number of the next piece expected from the receiver of this packet.
  std::uint32_t expected = 0;
  /// Number of this piece; data only.
  std::uint32_t number = 0;
  std::span<std::byte const> piece = {};
};

/// One end of the line introduces itself.
struct SerialHello {
  std::uint16_t version = protocol_version;
  std::uint32_t session = 0;
  /// The other end's session, as far as known; 0 if not.
  std::uint32_t peer_session = 0;
  /// The sender does not know yet that the other end knows it.
  bool wants_answer = false;
  WorkerId from, to;
  Incarnation incarnation;
  /// Why the sender declines the other end; 0 if it does not.
  std::int32_t status = 0;
  std::string secret;
};

inline constexpr std::size_t serial_packet_header_bytes = 17;
/// Longest piece an end may be configured to send; every end takes it.
inline constexpr std::size_t max_piece_bytes = 4096;

inline void write_packet(SerialPacket const& packet, std::vector<std::byte>& bytes) {
  Writer out(std::move(bytes));
  out.number(static_cast<std::uint8_t>(packet.kind));
  out.number(packet.from_session);
  out.number(packet.to_session);
  out.number(packet.expected);
  if (packet.kind == SerialPacketKind::data) {
    out.number(packet.number);
    out.raw(packet.piece);
  }
  bytes = out.take();
}

inline std::optional<SerialPacket> read_packet(std::span<std::byte const> bytes) {
  Reader in(bytes);
  SerialPacket packet;
  packet.kind = static_cast<SerialPacketKind>(in.number<std::uint8_t>());
  packet.from_session = in.number<std::uint32_t>();
  packet.to_session = in.number<std::uint32_t>();
  packet.expected = in.number<std::uint32_t>();
  if (packet.kind == SerialPacketKind::data) {
    packet.number = in.number<std::uint32_t>();
    packet.piece = in.raw(in.remaining_bytes());
  }
  bool const known = packet.kind >= SerialPacketKind::data && packet.kind <= SerialPacketKind::gap;
  if (!known || !in.ok() || !in.at_end()) return std::nullopt;
  return packet;
}

inline void write_hello(SerialHello const& hello, std::vector<std::byte>& bytes) {
  Writer out(std::move(bytes));
  out.number(static_cast<std::uint8_t>(SerialPacketKind::hello));
  out.number(hello.version);
  out.number(hello.session);
  out.number(hello.peer_session);
  out.number(hello.wants_answer);
  out.id(hello.from);
  out.id(hello.to);
  out.number(hello.incarnation.value);
  out.number(hello.status);
  out.text(hello.secret);
  bytes = out.take();
}

/// A hello of another version is read up to what all versions have in common: the two sessions.
inline std::optional<SerialHello> read_hello(std::span<std::byte const> bytes) {
  Reader in(bytes);
  auto const kind = static_cast<SerialPacketKind>(in.number<std::uint8_t>());
  SerialHello hello;
  hello.version = in.number<std::uint16_t>();
  hello.session = in.number<std::uint32_t>();
  hello.peer_session = in.number<std::uint32_t>();
  if (kind != SerialPacketKind::hello || !in.ok()) return std::nullopt;
  if (hello.version != protocol_version) return hello;
  hello.wants_answer = in.number<bool>();
  hello.from = in.id<WorkerId>();
  hello.to = in.id<WorkerId>();
  hello.incarnation.value = in.number<std::uint32_t>();
  hello.status = in.number<std::int32_t>();
  hello.secret = in.text();
  if (!in.ok() || !in.at_end()) return std::nullopt;
  return hello;
}

/// Longest packet without checksum: a piece, or a hello with the longest secret.
inline constexpr std::size_t max_serial_packet_bytes = serial_packet_header_bytes + max_piece_bytes;
static_assert(max_job_secret_bytes + 64 < max_serial_packet_bytes);

}  // namespace distgrad::detail
