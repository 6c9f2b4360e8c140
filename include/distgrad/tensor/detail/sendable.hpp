#pragma once
#include <sstream>
#include <string>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <distgrad/core/error.hpp>
#include <distgrad/tensor/tensor_meta.hpp>

// Which tensors can be sent, and how their memory has to look. For tensors on any device.
namespace distgrad::detail {

[[noreturn]] inline void cannot_send(std::string const& what, std::string const& advice) {
  throw Error(errc::unsupported_tensor, what + " cannot be sent; " + advice);
}

template <class Printable>
std::string printed(Printable const& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

inline void check_sendable(at::Tensor const& tensor) {
  if (tensor.is_quantized() || is_quantized_type(tensor.scalar_type())) {
    cannot_send("a quantized tensor", "send dequantize() or int_repr() of it");
  }
  if (tensor.is_nested()) cannot_send("a nested tensor", "send its components as a vector");
  auto const layout = tensor.layout();
  if (layout != at::kStrided && layout != at::kSparse) {
    cannot_send("a tensor of layout " + printed(layout),
                "supported are strided and sparse COO: send to_dense() or to_sparse() of it");
  }
  auto const* impl = tensor.unsafeGetTensorImpl();
  if (impl->is_python_dispatch() || impl->key_set().has(c10::DispatchKey::Functionalize)) {
    cannot_send("a tensor subclass", "send an ordinary tensor with its values");
  }
  if (layout == at::kStrided && !tensor._is_zerotensor() && !tensor.has_storage()) {
    cannot_send("a tensor without storage (" + std::string(tensor.toString()) + ")",
                "send an ordinary tensor with its values");
  }
}

// A tensor with the same elements whose memory may be shown to a transport.
inline at::Tensor with_plain_memory(at::Tensor const& tensor) {
  // Without recording, and what comes out of it is only read.
  c10::AutoGradMode const no_recording(false);
  if (tensor._is_zerotensor()) return tensor.clone();
  auto plain = tensor.is_conj() || tensor.is_neg() ? tensor.resolve_conj().resolve_neg() : tensor;
  // Memory without a context belongs to nobody: it could vanish before it is sent.
  bool const owned = plain.numel() == 0 || plain.storage().data_ptr().get_context() != nullptr;
  if (!owned || !has_dense_strides(plain.sizes(), plain.strides())) plain = plain.clone();
  // A clone keeps the order of strides; only if it is not dense for another reason, give that up.
  return has_dense_strides(plain.sizes(), plain.strides()) ? plain : plain.contiguous();
}

inline TensorMeta describe_strided(at::Tensor const& plain) {
  TensorMeta meta;
  meta.kind = TensorKind::strided;
  meta.dtype = plain.scalar_type();
  meta.device = plain.device();
  meta.sizes = plain.sizes();
  meta.strides = plain.strides();
  return meta;
}

}  // namespace distgrad::detail
