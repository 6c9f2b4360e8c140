#pragma once
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Storage.h>
#include <torch/library.h>

#include <distgrad/tensor/compat.hpp>
#include <distgrad/testing/detail/simulated_machine.hpp>

// Operators of the simulated device. Memory, copies and waits are written here; everything else is
// one boxed fallback that runs the CPU's operator on the device's memory when its turn comes.
namespace distgrad::testing::detail {

using Values = torch::jit::Stack;

inline SimulatedAllocator& simulated_allocator() {
  static SimulatedAllocator allocator(false);
  return allocator;
}

inline c10::Stream stream_of(c10::Device device) {
  return SimulatedMachine::current_stream(device);
}

inline void enqueue(c10::Stream stream, unique_function<void()> kernel) {
  SimulatedMachine::get().enqueue(SimulatedMachine::number(stream), std::move(kernel));
}
inline void await(c10::Stream stream) {
  auto& machine = SimulatedMachine::get();
  machine.await(machine.mark(machine.number(stream)));
}

// The CPU's operator, without autograd and seen by no profiler.
inline void run_on_host(c10::OperatorHandle const& op, Values& values) {
  at::AutoDispatchBelowADInplaceOrView const below_autograd;
  at::DisableRecordFunctionGuard const unseen;
  op.callBoxed(&values);
}

inline at::Tensor tensor_in(c10::Storage storage, at::Tensor const& like) {
  auto const key =
      storage.device().is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1;
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                         c10::DispatchKeySet(key), like.dtype());
  auto* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_offset(like.storage_offset());
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  return tensor;
}

// The device's memory as a kernel sees it. It does not keep it: no kernel does.
inline at::Tensor as_kernel_sees(at::Tensor const& tensor) {
  auto const& storage = tensor.storage();
  c10::DataPtr data(const_cast<void*>(storage.data_ptr().get()), c10::DeviceType::CPU);
  return tensor_in(c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data)),
                   tensor);
}

// What a launch copies: the values of a tensor of the host.
inline at::Tensor snapshot(at::Tensor const& tensor) {
  if (!tensor.defined()) return tensor;
  auto copy = tensor.clone();
  bool const is_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (is_number) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  return copy;
}

inline bool is_simulated(at::Tensor const& tensor) {
  return tensor.defined() && tensor.device().type() == simulated_type;
}

// `value` with `map` applied to every tensor in it, and everything else for the CPU.
template <class Map>
c10::IValue map_value(c10::IValue const& value, Map& map) {
  if (value.isTensor()) return map(value.toTensor());
  if (value.isDevice()) return c10::Device(c10::DeviceType::CPU);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (auto const& tensor : value.toTensorVector()) list.push_back(map(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    auto list = value.toOptionalTensorList().copy();
    for (std::size_t i = 0; i < list.size(); ++i) {
      auto const item = list.get(i);
      if (item) list.set(i, map(*item));
    }
    return list;
  }
  return value;
}
template <class Map>
Values map_values(Values const& values, Map map) {
  Values mapped;
  for (auto const& value : values) mapped.push_back(map_value(value, map));
  return mapped;
}

inline c10::Storage zeros(std::size_t bytes) {
  auto* const allocator = c10::GetAllocator(c10::DeviceType::CPU);
  auto data = allocator->allocate(bytes);
  if (bytes > 0) std::memset(data.get(), 0, bytes);
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), allocator, true);
}

// Twins of tensors on the host, filled with zeros: what an operator makes of them tells shapes,
// and which of its results are inputs or views of inputs.
class DryRun {
 public:
  at::Tensor twin(at::Tensor const& tensor) {
    if (!is_simulated(tensor)) return snapshot(tensor);
    auto& storage = storages_[tensor.storage().unsafeGetStorageImpl()];
    if (!storage.first) {
      storage = {zeros(tensor.storage().nbytes()), tensor.storage()};
    }
    auto& made = twins_.emplace_back(tensor, tensor_in(storage.first, tensor)).second;
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      made.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return made;
  }
  // The input that `result` is; undefined if it is none.
  at::Tensor find_input(at::Tensor const& result) const {
    for (auto const& [tensor, twin] : twins_) {
      if (twin.is_same(result)) return tensor;
    }
    return {};
  }
  // The same view of the device's memory; undefined if it is a view of no input.
  at::Tensor find_view(at::Tensor const& result) const {
    for (auto const& [key, storage] : storages_) {
      if (storage.first.unsafeGetStorageImpl() == result.storage().unsafeGetStorageImpl()) {
        return tensor_in(storage.second, result);
      }
    }
    return {};
  }
  // What the operator did to the shape of its inputs; grown ones lose their elements.
  void reshape_inputs() const {
    for (auto const& [tensor, twin] : twins_) {
      if (twin.sizes() == tensor.sizes() && twin.strides() == tensor.strides()) continue;
      auto const bytes = twin.storage().nbytes();
      auto* const storage = tensor.storage().unsafeGetStorageImpl();
      if (storage->nbytes() < bytes) {
        c10::DeviceGuard const guard(tensor.device());
        storage->set_data_ptr(simulated_allocator().allocate(bytes));
        storage->set_nbytes(bytes);
      }
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(twin.sizes(), twin.strides());
    }
  }

 private:
  std::unordered_map<void const*, std::pair<c10::Storage, c10::Storage>> storages_;
  std::vector<std::pair<at::Tensor, at::Tensor>> twins_;
};

inline at::Tensor allocate_like(at::Tensor const& shape, c10::Device device) {
  c10::DeviceGuard const guard(device);
  at::Tensor tensor = at::detail::empty_strided_generic(
      shape.sizes(), shape.strides(), &simulated_allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), shape.scalar_type());
  return tensor;
}

inline c10::Device device_of(Values const& arguments) {
  c10::Device device(simulated_type, SimulatedMachine::current().device);
  bool found = false;
  auto const look = [&](at::Tensor const& tensor) {
    if (!is_simulated(tensor)) return tensor;
    TORCH_CHECK(!found || tensor.dim() == 0 || tensor.device() == device,
                "tensors of one operator are on ", device, " and ", tensor.device());
    if (!std::exchange(found, true)) device = tensor.device();
    return tensor;
  };
  map_values(arguments, look);
  return device;
}

// Whether the host must know the values before the operator can return.
inline bool is_synchronous(c10::OperatorHandle const& op) {
  for (auto const& result : op.schema().returns()) {
    if (!result.type()->isSubtypeOf(*c10::TensorType::get()) &&
        !result.type()->isSubtypeOf(*c10::ListType::ofTensors())) {
      return true;
    }
  }
  return op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
}

struct KernelCopy {
  at::Tensor to;
  std::size_t result, element;
};

inline at::Tensor result_at(Values const& results, KernelCopy const& copy) {
  auto const& value = results[copy.result];
  return value.isTensor() ? value.toTensor() : value.toTensorVector()[copy.element];
}

inline void run_synchronously(c10::OperatorHandle const& op, Values const& arguments, Values& stack,
                              c10::Device device) {
  await(stream_of(device));
  auto results = map_values(arguments, [](at::Tensor const& tensor) {
    return is_simulated(tensor) ? as_kernel_sees(tensor) : tensor;
  });
  run_on_host(op, results);
  auto const to_device = [&](at::Tensor const& result) {
    if (!result.defined()) return result;
    auto const tensor = allocate_like(result, device);
    enqueue(stream_of(device), [to = as_kernel_sees(tensor), from = result.clone()] {
      at::AutoDispatchBelowADInplaceOrView const below_autograd;
      to.copy_(from);
    });
    return tensor;
  };
  for (auto& result : map_values(results, to_device)) stack.push_back(std::move(result));
}

inline void simulated_operator(c10::OperatorHandle const& op, Values* stack) {
  auto const arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  auto const device = device_of(arguments);
  if (is_synchronous(op)) return run_synchronously(op, arguments, *stack, device);

  DryRun dry;
  auto shapes = map_values(arguments, [&](at::Tensor const& t) { return dry.twin(t); });
  run_on_host(op, shapes);
  dry.reshape_inputs();

  bool computes = shapes.empty();
  std::vector<KernelCopy> copies;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    std::size_t element = 0;
    auto const place = [&](at::Tensor const& shape) {
      if (!shape.defined()) return shape;
      if (auto const view = dry.find_input(shape); view.defined()) {
        computes = true;
        return view;
      }
      if (auto const view = dry.find_view(shape); view.defined()) return view;
      computes = true;
      auto const tensor = allocate_like(shape, device);
      copies.push_back({as_kernel_sees(tensor), i, element++});
      return tensor;
    };
    stack->push_back(map_value(shapes[i], place));
  }
  if (!computes) return;
  auto seen = map_values(arguments, [](at::Tensor const& tensor) {
    return is_simulated(tensor) ? as_kernel_sees(tensor) : snapshot(tensor);
  });
  enqueue(stream_of(device), [op, values = std::move(seen), copies = std::move(copies)]() mutable {
    run_on_host(op, values);
    at::AutoDispatchBelowADInplaceOrView const below_autograd;
    for (auto const& copy : copies) copy.to.copy_(result_at(values, copy));
  });
}

// --- memory and copies ---------------------------------------------------------------------------

inline void simulated_empty(c10::OperatorHandle const& op, Values* stack) {
  auto const arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  bool const is_strided = op.schema().name() == "aten::empty_strided";
  auto const options = is_strided ? 2 : 1;
  auto const dtype = arguments[options].isNone() ? c10::get_default_dtype_as_scalartype()
                                                 : arguments[options].toScalarType();
  auto const device = arguments[options + 2].isNone() ? c10::Device(simulated_type)
                                                      : arguments[options + 2].toDevice();
  c10::DeviceGuard const guard({simulated_type, SimulatedMachine::index_of(device)});
  c10::DispatchKeySet const keys(c10::DispatchKey::PrivateUse1);
  auto const sizes = arguments[0].toIntVector();
  at::Tensor tensor = is_strided
                          ? at::detail::empty_strided_generic(sizes, arguments[1].toIntVector(),
                                                              &simulated_allocator(), keys, dtype)
                          : at::detail::empty_generic(sizes, &simulated_allocator(), keys, dtype,
                                                      arguments[5].toOptional<c10::MemoryFormat>());
  stack->push_back(std::move(tensor));
}

inline void copy_in_kernel(c10::Stream stream, at::Tensor const& to, at::Tensor const& from) {
  enqueue(stream, [to, from] {
    at::AutoDispatchBelowADInplaceOrView const below_autograd;
    at::DisableRecordFunctionGuard const unseen;
    to.copy_(from);
  });
}

// As real devices do: copies between devices join both current streams; pageable memory of the host
// is read at once, and written before the call returns; pinned memory is used when the kernel runs.
inline at::Tensor& simulated_copy(at::Tensor& to, at::Tensor const& from, bool non_blocking) {
  auto& machine = SimulatedMachine::get();
  auto const is_late = [&](at::Tensor const& host) {
    return non_blocking && machine.is_pinned(host.storage().data_ptr().get());
  };
  if (is_simulated(to) && is_simulated(from)) {
    auto const source = stream_of(from.device()), target = stream_of(to.device());
    bool const crosses = source != target;
    if (crosses) machine.block(machine.number(source), machine.mark(machine.number(target)));
    copy_in_kernel(source, as_kernel_sees(to), as_kernel_sees(from));
    if (crosses) machine.block(machine.number(target), machine.mark(machine.number(source)));
  } else if (is_simulated(to)) {
    auto const stream = stream_of(to.device());
    if (is_late(from)) machine.record_use(from.storage().data_ptr(), machine.number(stream));
    copy_in_kernel(stream, as_kernel_sees(to),
                   is_late(from) ? as_kernel_sees(from) : snapshot(from));
  } else {
    auto const stream = stream_of(from.device());
    if (is_late(to)) machine.record_use(to.storage().data_ptr(), machine.number(stream));
    copy_in_kernel(stream, as_kernel_sees(to), as_kernel_sees(from));
    if (!is_late(to)) await(stream);
  }
  return to;
}

inline void simulated_record_stream(at::Tensor& tensor, c10::Stream stream) {
  SimulatedMachine::get().record_use(tensor.storage().data_ptr(), SimulatedMachine::number(stream));
}

// Tells libtorch of the device, once in a program.
inline void install_simulated_devices() {
  struct Installed {
    SimulatedGuard guard;
    c10::impl::DeviceGuardImplRegistrar registrar{simulated_type, &guard};
    torch::Library all{torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__,
                       __LINE__};
    torch::Library aten{torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                        __LINE__};
    Installed() {
      announce_own_devices();
      c10::SetAllocator(simulated_type, &simulated_allocator());
      all.fallback(torch::CppFunction::makeFromBoxedFunction<&simulated_operator>());
      auto const empty = [] {
        return torch::CppFunction::makeFromBoxedFunction<&simulated_empty>();
      };
      aten.impl("empty.memory_format", empty());
      aten.impl("empty_strided", empty());
      aten.impl("copy_", &simulated_copy);
      aten.impl("record_stream", &simulated_record_stream);
    }
  };
  static auto* const installed = new Installed;
  (void)installed;
}

}  // namespace distgrad::testing::detail
