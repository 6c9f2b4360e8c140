#pragma once
#include <cstddef>
#include <string_view>

namespace distgrad::detail {

// Bytes of the well-formed UTF-8 character at the start of `text`; 0 if there is none.
// @source RFC 3629, section 4.
constexpr std::size_t utf8_character_bytes(std::string_view text) {
  auto const byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  unsigned const lead = byte(0);
  if (lead < 0x80) return 1;
  std::size_t const size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // The second byte's range is narrower after these: overlong forms, surrogates, beyond U+10FFFF.
  bool const is_wrong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
                        (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f);
  return is_wrong ? 0 : size;
}

// Stands for a byte that belongs to no character.
inline constexpr std::string_view replacement_character = "\xef\xbf\xbd";

}  // namespace distgrad::detail
