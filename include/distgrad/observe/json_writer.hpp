#pragma once
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <distgrad/observe/detail/utf8.hpp>

namespace distgrad {

/// Writes JSON whose brackets and commas cannot be wrong: what stands inside an object or array is
/// written by the function given for it.
///
///     JsonWriter json;
///     json.object([&] { json.member("rank", 3); json.array("peers", [&] { json.value("ps0"); });
///     });
///
/// @source RFC 8259. Text that is not UTF-8 gets a replacement character for each wrong byte;
/// numbers that JSON does not have become null.
class JsonWriter {
 public:
  template <class Members>
  void object(Members&& members) {
    enclose('{', '}', members);
  }
  template <class Elements>
  void array(Elements&& elements) {
    enclose('[', ']', elements);
  }
  template <class Members>
  void object(std::string_view name, Members&& members) {
    key(name);
    enclose('{', '}', members);
  }
  template <class Elements>
  void array(std::string_view name, Elements&& elements) {
    key(name);
    enclose('[', ']', elements);
  }
  template <class T>
  void member(std::string_view name, T const& content) {
    key(name);
    value(content);
  }

  void value(std::string_view text) {
    separate();
    text_ += '"';
    while (!text.empty()) text.remove_prefix(character(text));
    text_ += '"';
  }
  void value(std::string const& text) { value(std::string_view(text)); }
  void value(char const* text) { value(std::string_view(text)); }
  void value(bool truth) { raw(truth ? "true" : "false"); }
  template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
  void value(Number number) {
    if constexpr (std::floating_point<Number>) {
      if (!std::isfinite(number)) return raw("null");
    }
    char digits[40];
    auto const end = std::to_chars(digits, digits + sizeof digits, number);
    raw({digits, end.ptr});
  }
  /// JSON that was written elsewhere.
  void member_json(std::string_view name, std::string_view json) {
    key(name);
    raw(json);
  }
  void raw(std::string_view json) {
    separate();
    text_ += json;
  }

  std::string take() { return std::move(text_); }

 private:
  template <class Inside>
  void enclose(char open, char close, Inside& inside) {
    separate();
    text_ += open;
    is_first_ = true;
    inside();
    text_ += close;
    is_first_ = false;
  }
  void key(std::string_view name) {
    value(name);
    text_ += ':';
    is_first_ = true;  // the value that follows is separated already
  }
  void separate() {
    if (!std::exchange(is_first_, false)) text_ += ',';
  }
  /// Writes the first character of `text`. @return how many bytes it took.
  std::size_t character(std::string_view text) {
    auto const bytes = detail::utf8_character_bytes(text);
    auto const byte = static_cast<unsigned char>(text.front());
    if (bytes == 0) {
      text_ += detail::replacement_character;
    } else if (byte < 0x20) {
      static constexpr char const* hex = "0123456789abcdef";
      text_.append("\\u00").append(1, hex[byte >> 4]).append(1, hex[byte & 15]);
    } else {
      if (byte == '"' || byte == '\\') text_ += '\\';
      text_ += text.substr(0, bytes);
    }
    return bytes == 0 ? 1 : bytes;
  }

  std::string text_;
  bool is_first_ = true;
};

}  // namespace distgrad
