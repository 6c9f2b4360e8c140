#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include <boost/crc.hpp>

// How packets stand on a line that may lose, change and invent bytes: each is COBS-coded, so that
// it contains no zero byte, and stands between two of them. Whatever happened to the bytes before,
// the next zero begins anew. A CRC-32C at the end of the packet tells whether it is what was sent.
namespace distgrad::detail {

/// @source RFC 3720, section 12.1 and appendix B.4
inline std::uint32_t crc32c(std::span<std::byte const> bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

/// Appends `bytes` in blocks: a code n, then n - 1 bytes that are not zero. A code below 255 stands
/// for a zero after its block, the last block's excepted. @param bytes not empty.
/// @source Cheshire and Baker, Consistent Overhead Byte Stuffing, 1999
inline void cobs_encode(std::span<std::byte const> bytes, std::vector<std::byte>& out) {
  for (;;) {
    auto const most = std::min<std::size_t>(bytes.size(), 254);
    auto const* zero = static_cast<std::byte const*>(std::memchr(bytes.data(), 0, most));
    auto const run = zero ? static_cast<std::size_t>(zero - bytes.data()) : most;
    out.push_back(static_cast<std::byte>(run + 1));
    out.insert(out.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(run));
    bytes = bytes.subspan(zero ? run + 1 : run);
    if (!zero && bytes.empty()) return;
  }
}

/// Decodes in place. @return the decoded part of `bytes`; nothing if they are no code.
inline std::optional<std::span<std::byte>> cobs_decode(std::span<std::byte> bytes) {
  std::size_t from = 0, to = 0;
  while (from < bytes.size()) {
    auto const code = std::to_integer<std::size_t>(bytes[from++]);
    if (code == 0 || code - 1 > bytes.size() - from) return std::nullopt;
    std::memmove(bytes.data() + to, bytes.data() + from, code - 1);
    from += code - 1;
    to += code - 1;
    if (code < 255 && from < bytes.size()) bytes[to++] = std::byte{0};
  }
  return bytes.first(to);
}

/// Makes of a packet what goes over the line. Both delimiters are always sent: a packet whose last
/// one was lost still ends where the next one begins.
/// @param packet gets its checksum appended. @param line is overwritten.
inline void write_line(std::vector<std::byte>& packet, std::vector<std::byte>& line) {
  auto const crc = crc32c(packet);
  auto const* crc_bytes = reinterpret_cast<std::byte const*>(&crc);
  packet.insert(packet.end(), crc_bytes, crc_bytes + sizeof crc);
  line.assign(1, std::byte{0});
  cobs_encode(packet, line);
  line.push_back(std::byte{0});
}

/// Finds the packets in what comes from a line. @threads one at a time.
class LineDecoder {
 public:
  /// @param max_packet_bytes without checksum; longer ones are taken for garbage.
  explicit LineDecoder(std::size_t max_packet_bytes)
      : max_coded_bytes_(max_packet_bytes + sizeof(std::uint32_t) +
                         (max_packet_bytes + sizeof(std::uint32_t)) / 254 + 1) {}

  /// Calls `on_packet(std::span<std::byte const>)` for each intact packet that ends in `bytes`.
  template <class OnPacket>
  void feed(std::span<std::byte const> bytes, OnPacket&& on_packet) {
    while (!bytes.empty()) {
      auto const* zero = static_cast<std::byte const*>(std::memchr(bytes.data(), 0, bytes.size()));
      auto const run = zero ? static_cast<std::size_t>(zero - bytes.data()) : bytes.size();
      append(bytes.first(run));
      if (!zero) return;
      bytes = bytes.subspan(run + 1);
      if (auto const packet = take()) on_packet(*packet);
    }
  }

  /// Runs of bytes between delimiters that were no packet.
  std::uint64_t damaged() const { return damaged_; }

 private:
  void append(std::span<std::byte const> bytes) {
    if (bytes.empty()) return;
    if (is_taken_) coded_.clear();
    is_taken_ = false;
    auto const room = max_coded_bytes_ + 1 - coded_.size();  // one too many marks an overlong run
    auto const taken = bytes.first(std::min(bytes.size(), room));
    coded_.insert(coded_.end(), taken.begin(), taken.end());
  }

  /// At a delimiter. The bytes stay until the next ones come.
  std::optional<std::span<std::byte const>> take() {
    if (coded_.empty() || is_taken_) return std::nullopt;
    is_taken_ = true;
    bool const is_overlong = coded_.size() > max_coded_bytes_;
    auto const packet = is_overlong ? std::nullopt : checked(cobs_decode(coded_));
    if (!packet) ++damaged_;
    return packet;
  }

  static std::optional<std::span<std::byte const>> checked(
      std::optional<std::span<std::byte>> const& decoded) {
    std::uint32_t crc = 0;
    if (!decoded || decoded->size() <= sizeof crc) return std::nullopt;
    auto const packet = decoded->first(decoded->size() - sizeof crc);
    std::memcpy(&crc, packet.data() + packet.size(), sizeof crc);
    if (crc != crc32c(packet)) return std::nullopt;
    return packet;
  }

  std::size_t max_coded_bytes_;
  std::vector<std::byte> coded_;
  bool is_taken_ = false;
  std::uint64_t damaged_ = 0;
};

}  // namespace distgrad::detail
