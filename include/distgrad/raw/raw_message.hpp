#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/result.hpp>
#include <distgrad/raw/raw_tensor.hpp>
#include <distgrad/wire/extension.hpp>
#include <distgrad/wire/message.hpp>
#include <distgrad/wire/writer.hpp>

namespace distgrad {

/// The values of a call or answer, encoded, and the tensors among them.
struct RawValues {
  Writer writer;
  std::vector<RawTensor> tensors;
};

/// The same on the other side. `bytes` views the message it was read from.
struct ReceivedRawValues {
  std::span<std::byte const> bytes;
  std::vector<RawTensor> tensors;
  Extension extension = Extension::plain;
};

/// A request to run `function`, without its call id.
DISTGRAD_DECL Message make_raw_call(std::string_view function, std::uint64_t signature,
                                    RawValues values);
/// The answer to one.
DISTGRAD_DECL Message make_raw_reply(CallId call, RawValues values);

/// Reads what stands behind the prefix of a call, or all of an answer.
/// @return `bad_value` for bytes that do not follow docs/wire-format.md, and for tensors that are
/// sparse, undefined, on a device, or of a type without a number in `ElementType`.
DISTGRAD_DECL Result<ReceivedRawValues> read_raw_values(Message const& message,
                                                        std::size_t prefix_bytes);

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/raw/impl/raw_message.ipp>
#endif
