#pragma once
#include <string>
#include <utility>

#include <distgrad/raw/raw_message.hpp>
#include <distgrad/wire/reader.hpp>
#include <distgrad/wire/tensor_kind.hpp>

namespace distgrad {
namespace detail {

inline void write_raw_tensor(Writer& out, RawTensor const& tensor) {
  out.number(static_cast<std::uint8_t>(TensorKind::strided));
  out.number(std::uint8_t{0});  // flags
  out.number(static_cast<std::uint8_t>(tensor.type));
  out.number(std::int8_t{0});   // the host's memory,
  out.number(std::int8_t{-1});  // which has no number
  out.number(static_cast<std::uint8_t>(tensor.sizes.size()));
  for (auto const size : tensor.sizes) out.number(size);
}

/// Adds what a call and an answer have in common.
inline void add_values(Writer& out, Message& message, RawValues values) {
  out.number<std::uint64_t>(values.writer.size_bytes());
  out.raw(values.writer.bytes());
  out.number<std::uint64_t>(values.tensors.size());
  for (auto& tensor : values.tensors) {
    write_raw_tensor(out, tensor);
    if (tensor.elements.size_bytes() > 0) message.buffers.push_back(std::move(tensor.elements));
  }
  out.number(static_cast<std::uint8_t>(Extension::plain));
  message.metadata = out.take();
}

/// A tensor's description, before its elements are looked at.
struct RawLayout {
  ElementType type{};
  std::vector<std::int64_t> sizes;
  /// In elements; empty where they are those of the sizes.
  std::vector<std::int64_t> strides;
  std::int64_t count = 1;
};

inline ErrorReport bad_raw_tensor(std::string const& what) {
  return {errc::bad_value, "a received tensor " + what};
}

inline std::vector<std::int64_t> read_raw_dimensions(Reader& in, std::size_t count) {
  std::vector<std::int64_t> values(count);
  for (auto& value : values) {
    value = in.number<std::int64_t>();
    if (value < 0) in.fail();
  }
  return values;
}

/// The number of elements; false where it, or its bytes, exceed what can be counted.
inline bool count_elements(RawLayout& layout) {
  std::int64_t product = 1, bytes = 0;
  bool is_empty = false;
  for (auto const size : layout.sizes) {
    is_empty = is_empty || size == 0;
    if (__builtin_mul_overflow(product, std::max<std::int64_t>(size, 1), &product)) return false;
  }
  layout.count = is_empty ? 0 : product;
  auto const each = static_cast<std::int64_t>(element_bytes(layout.type));
  return !__builtin_mul_overflow(product, each, &bytes);
}

/// Whether all elements that the strides lead to are among the first `count`.
inline bool stay_inside(RawLayout const& layout) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < layout.strides.size() && layout.count > 0; ++i) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(layout.sizes[i] - 1, layout.strides[i], &reach)) return false;
    if (__builtin_add_overflow(last, reach, &last)) return false;
  }
  return layout.count == 0 || last < layout.count;
}

inline Result<RawLayout> read_raw_layout(Reader& in) {
  auto const kind = in.number<std::uint8_t>();
  if (!in.ok()) return bad_raw_tensor("has a description that is cut off");
  if (kind != static_cast<std::uint8_t>(TensorKind::strided)) {
    return bad_raw_tensor("is undefined or sparse, which a raw worker does not take");
  }
  auto const flags = in.number<std::uint8_t>();
  if (flags & ~(requires_grad_flag | strides_flag)) return bad_raw_tensor("has unknown flags");
  RawLayout layout;
  layout.type = static_cast<ElementType>(in.number<std::uint8_t>());
  if (element_bytes(layout.type) == 0) {
    return bad_raw_tensor("has elements of type " + std::to_string(int(layout.type)) +
                          ", which a raw worker does not know");
  }
  auto const device = in.number<std::int8_t>();
  auto const device_index = in.number<std::int8_t>();
  if (device != 0 || device_index < -1 || device_index > 0) {
    return bad_raw_tensor("is on a device, which a raw worker does not have");
  }
  auto const dimensions = in.number<std::uint8_t>();
  if (dimensions > max_tensor_dimensions) return bad_raw_tensor("has more than 64 dimensions");
  layout.sizes = read_raw_dimensions(in, dimensions);
  if (flags & strides_flag) layout.strides = read_raw_dimensions(in, dimensions);
  if (!in.ok()) return bad_raw_tensor("has a negative size, or a description that is cut off");
  if (!count_elements(layout)) return bad_raw_tensor("has sizes whose product overflows");
  if (!stay_inside(layout)) return bad_raw_tensor("has strides that leave its elements");
  return layout;
}

/// Copies elements that lie as `layout` says to `to`, one dimension after the other.
inline void order_elements(RawLayout const& layout, std::byte const* from, std::byte* to) {
  auto const width = element_bytes(layout.type);
  std::vector<std::int64_t> index(layout.sizes.size());
  for (std::int64_t n = 0; n < layout.count; ++n, to += width) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < index.size(); ++i) offset += index[i] * layout.strides[i];
    std::memcpy(to, from + static_cast<std::size_t>(offset) * width, width);
    for (auto i = index.size(); i-- > 0 && ++index[i] == layout.sizes[i];) index[i] = 0;
  }
}

/// Takes a tensor's buffer from the front of `buffers`.
inline Result<RawTensor> make_raw_tensor(RawLayout layout, std::span<Buffer const>& buffers) {
  auto const bytes = static_cast<std::size_t>(layout.count) * element_bytes(layout.type);
  RawTensor tensor{layout.type, std::move(layout.sizes), {}};
  if (bytes == 0) return tensor;
  if (buffers.empty() || buffers.front().size_bytes() != bytes) {
    return bad_raw_tensor("came with another number of bytes than its sizes say");
  }
  tensor.elements = buffers.front();
  buffers = buffers.subspan(1);
  if (layout.strides.empty()) return tensor;
  auto ordered = allocate_raw(bytes);
  if (!ordered.data()) return ErrorReport{errc::limit_reached, "no memory for a received tensor"};
  layout.sizes = tensor.sizes;
  order_elements(layout, tensor.elements.data(), ordered.data());
  tensor.elements = std::move(ordered);
  return tensor;
}

/// Ids behind the extension's byte are for workers with autograd.
inline bool read_extension(Reader& in, Extension& extension) {
  extension = static_cast<Extension>(in.number<std::uint8_t>());
  switch (extension) {
    case Extension::plain:
    case Extension::constants: break;
    case Extension::recorded: in.id<ContextId>(); [[fallthrough]];
    case Extension::context: in.id<ContextId>(); break;
    default: return false;
  }
  return in.ok() && in.at_end();
}

}  // namespace detail

DISTGRAD_DECL Message make_raw_call(std::string_view function, std::uint64_t signature,
                                    RawValues values) {
  Message message{.kind = FrameKind::call};
  Writer out;
  out.text(function);
  out.number(signature);
  detail::add_values(out, message, std::move(values));
  return message;
}

DISTGRAD_DECL Message make_raw_reply(CallId call, RawValues values) {
  Message message{.kind = FrameKind::reply, .call = call};
  Writer out;
  detail::add_values(out, message, std::move(values));
  return message;
}

DISTGRAD_DECL Result<ReceivedRawValues> read_raw_values(Message const& message,
                                                        std::size_t prefix_bytes) {
  if (message.flags & device_flag) return detail::bad_raw_tensor("is for a device");
  Reader in(std::span<std::byte const>(message.metadata).subspan(prefix_bytes));
  ReceivedRawValues values;
  values.bytes = in.raw(in.count());
  std::span<Buffer const> buffers(message.buffers);
  auto const count = in.count();
  for (std::size_t i = 0; i < count; ++i) {
    auto layout = detail::read_raw_layout(in);
    if (!layout) return layout.error();
    auto tensor = detail::make_raw_tensor(std::move(*layout), buffers);
    if (!tensor) return tensor.error();
    values.tensors.push_back(std::move(*tensor));
  }
  if (!buffers.empty()) return detail::bad_raw_tensor("list came with too many buffers");
  if (!detail::read_extension(in, values.extension)) {
    return ErrorReport{errc::bad_value, "the message's values are malformed"};
  }
  return values;
}

}  // namespace distgrad
