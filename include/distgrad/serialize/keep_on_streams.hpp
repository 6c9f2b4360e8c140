#pragma once
#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <distgrad/queue/stream_order.hpp>
#include <distgrad/serialize/visit_tensors.hpp>

namespace distgrad {

/// Says that `stream` uses a tensor's memory. Undefined tensors, and those of the CPU, have none to
/// speak of.
inline void keep_tensor(at::Tensor const& tensor, c10::Stream stream, StreamOrder& order) {
  if (!tensor.defined() || tensor.device().is_cpu()) return;
  if (tensor.is_sparse()) {
    keep_tensor(tensor._indices(), stream, order);
    keep_tensor(tensor._values(), stream, order);
  } else {
    order.keep(tensor.storage().data_ptr(), stream);
  }
}

/// Says that the calling thread's current streams use the tensors in `value`, which another thread
/// handed on. Futures do it for what they hold.
/// @param order a `StreamOrder`, as every `DeviceOrder` is.
template <class T>
void keep_on_streams(T& value, DeviceOrder& order) {
  visit_tensors(value, [&](at::Tensor const& tensor) {
    if (!tensor.defined() || tensor.device().is_cpu()) return;
    keep_tensor(tensor, current_stream(tensor.device()), static_cast<StreamOrder&>(order));
  });
}

}  // namespace distgrad
