#pragma once
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <distgrad/transport/concept.hpp>
#include <distgrad/wire/reader.hpp>
#include <distgrad/wire/secret.hpp>
#include <distgrad/wire/writer.hpp>

// The first frames of a connection, without I/O. The connecting worker sends `hello`; the other
// one answers `welcome`, whose status is zero or says why it declines and ends the connection.
namespace distgrad::detail {

/// All that is read from a stranger: one header and at most this much after it.
inline constexpr FrameLimits handshake_limits{4096, 0, 0};

/// How long either side waits for the other's frame.
inline constexpr milliseconds handshake_timeout{5000};

struct Hello {
  WorkerId from;
  Incarnation incarnation;
  /// Whom the sender believes to talk to.
  WorkerId to;
  std::string secret;
};

struct Welcome {
  WorkerId from;
  Incarnation incarnation;
  error_code status;
};

inline std::vector<std::byte> handshake_frame(FrameKind kind, std::vector<std::byte> metadata) {
  auto const header = encode_frame_header({kind, 0, 0, {}, metadata.size(), 0});
  metadata.insert(metadata.begin(), header.begin(), header.end());
  return metadata;
}

inline std::vector<std::byte> encode_hello(Hello const& hello) {
  Writer out;
  out.id(hello.from);
  out.number(hello.incarnation.value);
  out.id(hello.to);
  out.text(hello.secret);
  return handshake_frame(FrameKind::hello, out.take());
}

inline std::optional<Hello> decode_hello(FrameHeader const& header,
                                         std::span<std::byte const> metadata) {
  Reader in(metadata);
  Hello hello;
  hello.from = in.id<WorkerId>();
  hello.incarnation.value = in.number<std::uint32_t>();
  hello.to = in.id<WorkerId>();
  hello.secret = in.text();
  if (header.kind != FrameKind::hello || !in.ok() || !in.at_end()) return std::nullopt;
  return hello;
}

inline std::vector<std::byte> encode_welcome(Welcome const& welcome) {
  Writer out;
  out.id(welcome.from);
  out.number(welcome.incarnation.value);
  out.number<std::int32_t>(welcome.status.value());
  return handshake_frame(FrameKind::welcome, out.take());
}

inline std::optional<Welcome> decode_welcome(FrameHeader const& header,
                                             std::span<std::byte const> metadata) {
  Reader in(metadata);
  Welcome welcome;
  welcome.from = in.id<WorkerId>();
  welcome.incarnation.value = in.number<std::uint32_t>();
  auto const status = in.number<std::int32_t>();
  if (header.kind != FrameKind::welcome || !in.ok() || !in.at_end()) return std::nullopt;
  if (status) welcome.status = is_known_errc(status) ? static_cast<errc>(status) : errc::refused;
  return welcome;
}

/// Incarnation 0 stands for one that is not known, as in a static list of endpoints.
inline bool is_expected(Incarnation expected, Incarnation found) {
  return expected == Incarnation{} || expected == found;
}

/// Whether the worker that started `setup` takes the connection. The secret is looked at first:
/// who does not know it learns nothing else.
inline error_code judge_hello(Hello const& hello, TransportSetup const& setup) {
  if (!is_same_secret(setup.job_secret, hello.secret)) return errc::bad_secret;
  if (hello.to != setup.self) return errc::unknown_worker;
  // The higher rank connects, so that a pair never has two connections.
  if (hello.from.value >= setup.group.size() || hello.from <= setup.self) {
    return errc::unknown_worker;
  }
  auto const& known = setup.group[hello.from.value].info;
  return is_expected(known.incarnation, hello.incarnation) ? error_code()
                                                           : make_error_code(errc::refused);
}

/// Whether the one who answered is `expected`.
inline error_code judge_welcome(Welcome const& welcome, WorkerInfo const& expected) {
  if (welcome.status) return welcome.status;
  bool const right =
      welcome.from == expected.id && is_expected(expected.incarnation, welcome.incarnation);
  return right ? error_code() : make_error_code(errc::unknown_worker);
}

}  // namespace distgrad::detail
