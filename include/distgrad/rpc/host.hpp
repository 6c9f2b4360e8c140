#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/ivalue.h>  // first: clang rejects ATen's headers in C++20 otherwise

#include <ATen/core/Tensor.h>

#include <distgrad/core/buffer.hpp>
#include <distgrad/core/deadline.hpp>
#include <distgrad/core/future.hpp>
#include <distgrad/observe/log.hpp>
#include <distgrad/queue/stream_order.hpp>
#include <distgrad/serialize/concept.hpp>
#include <distgrad/tensor/device_map.hpp>
#include <distgrad/transport/concept.hpp>
#include <distgrad/wire/reader.hpp>
#include <distgrad/wire/writer.hpp>

namespace distgrad {

class Observer;

/// The three policies of an engine, and its devices, with their types erased: what the rooms
/// between the policies and the engine ask of them. One virtual call per message or task.
/// @threads safe: shared object.
class Host : public FutureHost {
 public:
  /// Transport: hands `message` to the network.
  virtual void send(WorkerId to, Message message, SendCompletion done = nullptr) = 0;
  /// Transport: makes the I/O loop look at deadlines and state again.
  virtual void wake() noexcept = 0;
  /// Device queue: runs `task` on the compute pool, higher priorities first.
  virtual void submit(std::uint64_t priority, unique_function<void()> task) = 0;
  /// Serializer: appends the table of `tensors` to `out` and their payloads to `buffers`. Waits
  /// until tensors on devices are in the host's memory.
  virtual void pack(Writer& out, std::vector<Buffer>& buffers,
                    std::span<at::Tensor const> tensors) = 0;
  /// Serializer: the tensors of a message.
  virtual ReceivedTensors unpack(Reader& in, std::span<Buffer const> buffers) = 0;
  /// Serializer: memory for payloads of these lengths.
  /// @param for_devices tensors go on from there to devices.
  virtual std::vector<Buffer> landing(std::span<std::uint64_t const> lengths, bool for_devices) = 0;
  /// Devices: which device of a peer belongs to which here.
  virtual DeviceRoutes const& routes() const = 0;
  /// Devices: replaces received tensors by copies on `devices`, ready for the calling thread's
  /// current streams. Does not wait.
  virtual void place(std::span<at::Tensor> tensors, std::span<c10::Device const> devices) = 0;
  /// Device queue: orders work on the devices of this engine; null if there are none.
  StreamOrder* streams() const { return static_cast<StreamOrder*>(devices()); }
  virtual TimeSource const& clock() const = 0;
  /// Where all rooms write what no caller can be told.
  virtual Log const& log() const noexcept = 0;
  /// Who watches this engine; null if nobody does. Fixed before the engine starts.
  virtual Observer* observer() const noexcept { return nullptr; }

 protected:
  /// `order`, null for none, outlives this.
  explicit Host(StreamOrder* order = nullptr) { devices_ = order; }
};

}  // namespace distgrad
