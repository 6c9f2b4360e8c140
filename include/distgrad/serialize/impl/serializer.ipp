#pragma once
#include <new>
#include <string>
#include <utility>

#include <distgrad/core/error.hpp>
#include <distgrad/serialize/serializer.hpp>
#include <distgrad/tensor/tensor_meta.hpp>

namespace distgrad {

DISTGRAD_DECL void pack_tensors(Writer& out, std::vector<Buffer>& buffers,
                                std::span<at::Tensor const> tensors) {
  auto const before = buffers.size();
  out.number<std::uint64_t>(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    try {
      write_tensor_meta(out, append_tensor(tensors[i], buffers));
    } catch (Error const& e) {
      buffers.resize(before);
      throw Error(e.code(), "tensor " + std::to_string(i + 1) + " of " +
                                std::to_string(tensors.size()) + ": " + e.text());
    } catch (...) {
      buffers.resize(before);
      throw;
    }
  }
}

DISTGRAD_DECL ReceivedTensors unpack_tensors(Reader& in, std::span<Buffer const> buffers) {
  auto const count = in.count();
  ReceivedTensors received;
  std::size_t used = 0;
  for (std::size_t i = 0; i < count; ++i) {
    auto const meta = read_tensor_meta(in);
    auto const needed = meta.buffer_count();
    if (needed > buffers.size() - used) detail::bad_tensor("came with too few buffers");
    received.tensors.push_back(make_tensor(meta, buffers.subspan(used, needed)));
    received.requires_grad.push_back(meta.requires_grad);
    used += needed;
  }
  if (!in.ok()) detail::bad_tensor("list is cut off");
  if (used != buffers.size()) detail::bad_tensor("list came with too many buffers");
  return received;
}

DISTGRAD_DECL std::vector<Buffer> allocate_landings(std::span<std::uint64_t const> lengths) {
  std::vector<Buffer> buffers;
  buffers.reserve(lengths.size());
  try {
    for (auto const length : lengths) buffers.push_back(allocate_landing(length));
  } catch (std::bad_alloc const&) {
    // A peer announced more than there is; fewer buffers refuse its message.
  }
  return buffers;
}

}  // namespace distgrad
