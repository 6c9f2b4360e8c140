#pragma once
#include <string>
#include <string_view>

#include <distgrad/core/error.hpp>
#include <distgrad/wire/reader.hpp>
#include <distgrad/wire/writer.hpp>

namespace distgrad {

/// An error as it travels: a number, where it happened, in which function, and a bounded text.
struct WireError {
  error_code code;
  std::string worker;
  std::string function;
  CallId call;
  std::string text;
};

/// Longest error text that is sent, in bytes; the rest is cut off.
inline constexpr std::size_t max_error_text_bytes = 16384;

inline void write_error(Writer& out, WireError const& error) {
  bool const ours = error.code.category() == distgrad_category();
  out.number<std::int32_t>(ours ? error.code.value() : int(errc::remote_exception));
  out.text(error.worker);
  out.text(error.function);
  out.number(error.call.value);
  out.text(std::string_view(error.text).substr(0, max_error_text_bytes));
}

/// A number this version does not know becomes `errc::remote_unknown`; its text is kept.
inline WireError read_error(Reader& in) {
  WireError error;
  auto const number = in.number<std::int32_t>();
  error.code = is_known_errc(number) ? static_cast<errc>(number) : errc::remote_unknown;
  error.worker = in.text();
  error.function = in.text();
  error.call.value = in.number<std::uint64_t>();
  error.text = in.text();
  return error;
}

}  // namespace distgrad
