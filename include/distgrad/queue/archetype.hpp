#pragma once
#include <distgrad/queue/concept.hpp>

namespace distgrad {

/// Exactly what `QueuePolicy` asks and nothing more. The library is instantiated with it, so that
/// it cannot lean on anything the contract does not promise. It has no bodies: never run.
class QueueArchetype {
 public:
  using contract = queue_v1;
  struct Options {};
  class Event {
   public:
    Event() = delete;
    Event(Event&&);
    Event& operator=(Event&&);
  };
  static constexpr bool is_inline = false;

  explicit QueueArchetype(Options options);
  QueueArchetype(QueueArchetype const&) = delete;
  QueueArchetype& operator=(QueueArchetype const&) = delete;

  void submit(c10::Device device, ReadyTask task);
  std::size_t poll();
  void on_submit(unique_function<void()> wake);
  void stop() noexcept;
  std::span<c10::Stream const> streams() const;
  Event record(c10::Stream stream);
  void wait(c10::Stream stream, Event& event);
  void keep(c10::DataPtr const& memory, c10::Stream stream);
};

static_assert(QueuePolicy<QueueArchetype>);

}  // namespace distgrad
