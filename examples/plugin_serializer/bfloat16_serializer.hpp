// How do I write a serializer of my own? This one sends float tensors as bfloat16: half of the
// bytes, eight bits of precision. docs/policies/serializer.md explains it.
#pragma once
#include <distgrad/serialize/serializer.hpp>

#include <c10/core/GradMode.h>

namespace plugin {

using namespace distgrad;

class Bfloat16Serializer {
 public:
  using contract = serializer_v1;
  struct Options {};
  explicit Bfloat16Serializer(Options = {}) {}

  void pack(Writer& out, std::vector<Buffer>& buffers, std::span<at::Tensor const> tensors) const {
    std::vector<at::Tensor> sent;
    for (auto const& tensor : tensors) sent.push_back(shrinks(tensor) ? shrunk(tensor) : tensor);
    pack_tensors(out, buffers, sent);  // layouts, strides, errors: as every other serializer
    for (auto const& tensor : tensors) out.number(shrinks(tensor));
  }

  ReceivedTensors unpack(Reader& in, std::span<Buffer const> buffers) const {
    auto received = unpack_tensors(in, buffers);
    for (auto& tensor : received.tensors) {
      if (in.number<bool>()) tensor = restored(tensor);
    }
    if (!in.ok()) throw Error(errc::bad_value, "the list of shrunk tensors is cut off");
    return received;
  }

  std::vector<Buffer> landing(std::span<std::uint64_t const> lengths) const {
    return allocate_landings(lengths);
  }

 private:
  static bool shrinks(at::Tensor const& tensor) {
    return tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.device().is_cpu() &&
           tensor.layout() == at::kStrided;
  }
  /// What the sender's tensor wants travels with it; its history does not.
  static at::Tensor shrunk(at::Tensor const& tensor) {
    c10::AutoGradMode const no_recording(false);
    return tensor.detach().to(at::kBFloat16).set_requires_grad(tensor.requires_grad());
  }
  /// A peer may have sent anything.
  static at::Tensor restored(at::Tensor const& tensor) {
    if (!tensor.defined() || tensor.scalar_type() != at::kBFloat16 ||
        tensor.layout() != at::kStrided) {
      throw Error(errc::bad_value, "a shrunk tensor is not of bfloat16");
    }
    return tensor.to(at::kFloat);
  }
};

}  // namespace plugin
