#pragma once
#include <algorithm>
#include <atomic>
#include <concepts>
#include <memory>
#include <mutex>
#include <utility>

#include <distgrad/observe/observer.hpp>
#include <distgrad/queue/concept.hpp>
#include <distgrad/queue/queue_streams.hpp>
#include <distgrad/rpc/host.hpp>
#include <distgrad/rpc/interceptor.hpp>
#include <distgrad/rpc/traffic.hpp>
#include <distgrad/serialize/concept.hpp>
#include <distgrad/tensor/device_staging.hpp>
#include <distgrad/transport/concept.hpp>

namespace distgrad {

/// The three policies of an engine behind one interface. Futures keep it alive after the engine;
/// once detached it runs their continuations where they become ready.
template <TransportPolicy Transport, QueuePolicy Queues, SerializerPolicy Serializer>
class PolicyHost final : public Host {
 public:
  struct Options {
    typename Transport::Options transport;
    typename Queues::Options queues;
    typename Serializer::Options serializer;
    Log log;
    std::shared_ptr<TimeSource const> clock;
  };

  explicit PolicyHost(Options options)
      : transport(std::move(options.transport)),
        queues(std::move(options.queues)),
        serializer(std::move(options.serializer)),
        log_(std::move(options.log)),
        clock_(options.clock ? std::move(options.clock) : std::make_shared<TimeSource const>()) {
    if (!std::span<c10::Stream const>(queues.streams()).empty()) devices_ = &order;
  }

 private:
  std::unique_ptr<Observer> observer_;  // tasks that wait in the queues refer to it

 public:
  QueueStreams<Queues> order{queues};  // goes last: a task may still use it
  Transport transport;
  Queues queues;
  Serializer serializer;
  DeviceStaging staging{pinned_allocator()};
  DeviceRoutes device_routes;  // set once the group has met, before the transport starts

  /// What `carry` asks for the calling thread's state, and what `drive` turns; null for none.
  struct Engine {
    virtual ~Engine() = default;
    virtual bool turn(time_point until) = 0;
  };
  void attach(Interceptor* interceptor, Engine* engine) {
    interceptor_.store(interceptor);
    engine_.store(engine);
  }
  /// From now on; before anything is sent or submitted.
  void watch_with(std::unique_ptr<Observer> observer) { observer_ = std::move(observer); }
  void detach() noexcept {
    engine_.store(nullptr);
    interceptor_.store(nullptr);
  }

  void send(WorkerId to, Message message, SendCompletion done) override {
    if (observer_) observer_->sent(to, traffic_kind(message.kind), frame_bytes(message));
    transport.async_send(
        to, std::move(message), done ? std::move(done) : [](error_code) {});
  }
  void wake() noexcept override { transport.wake(); }
  void submit(std::uint64_t priority, unique_function<void()> task) override {
    if (observer_) task = watch_task(*observer_, std::move(task));
    queues.submit(c10::Device(c10::kCPU), {priority, std::move(task)});
  }
  void pack(Writer& out, std::vector<Buffer>& buffers,
            std::span<at::Tensor const> tensors) override {
    if (std::ranges::none_of(tensors, &is_on_device)) return serializer.pack(out, buffers, tensors);
    serializer.pack(out, buffers, staging.to_host(tensors));
  }
  ReceivedTensors unpack(Reader& in, std::span<Buffer const> buffers) override {
    return serializer.unpack(in, buffers);
  }
  std::vector<Buffer> landing(std::span<std::uint64_t const> lengths, bool for_devices) override {
    if (!for_devices || device_routes.devices().empty()) return serializer.landing(lengths);
    return staging.landing(lengths, device_routes.devices().front().type());
  }
  DeviceRoutes const& routes() const override { return device_routes; }
  void place(std::span<at::Tensor> tensors, std::span<c10::Device const> devices) override {
    staging.to_devices(tensors, devices);
  }
  TimeSource const& clock() const override { return *clock_; }
  Observer* observer() const noexcept override { return observer_.get(); }
  Log const& log() const noexcept override { return log_; }

  void post(unique_function<void()> continuation) override {
    if (interceptor_.load()) {
      submit(~std::uint64_t{0}, std::move(continuation));
    } else {
      continuation();
    }
  }
  unique_function<void()> carry(unique_function<void()> continuation) override {
    auto* interceptor = interceptor_.load();
    auto state = interceptor ? interceptor->current() : nullptr;
    if (!state) return continuation;
    return [this, state = std::move(state), continuation = std::move(continuation)]() mutable {
      CallStateScope scope(interceptor_.load(), std::move(state));
      continuation();
    };
  }
  /// @return events handled, at most `limit` where the transport can count them.
  std::size_t run_transport(time_point until, std::size_t limit) {
    if constexpr (BoundedTransport<Transport>) {
      return transport.run_until(until, limit);
    } else {
      return transport.run_until(until);
    }
  }
  /// @return tasks run, at most `limit` where the queues can count them.
  std::size_t run_tasks(std::size_t limit) {
    if constexpr (requires { queues.poll(limit); }) {
      return queues.poll(limit);
    } else {
      return queues.poll();
    }
  }
  bool drive(time_point until) override {
    if constexpr (Queues::is_inline) {
      if (auto* engine = engine_.load()) return engine->turn(until);
    }
    return false;
  }

 private:
  /// Queues of a device may know where its pinned memory is.
  static PinnedAllocator pinned_allocator() {
    if constexpr (requires {
                    { &Queues::pinned_allocator } -> std::convertible_to<PinnedAllocator>;
                  }) {
      return &Queues::pinned_allocator;
    } else {
      return &cuda_pinned_allocator;
    }
  }

  Log log_;
  std::shared_ptr<TimeSource const> clock_;
  std::atomic<Interceptor*> interceptor_{nullptr};
  std::atomic<Engine*> engine_{nullptr};
};

}  // namespace distgrad
