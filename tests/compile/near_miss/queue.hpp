#pragma once
// One type per way to miss QueuePolicy by one requirement, and what the compiler has to say.
#include "near_miss.hpp"

#include <distgrad/queue/archetype.hpp>

namespace near_queue {

using namespace distgrad;

struct Model {
  using contract = queue_v1;
  struct Options {};
  struct Event {};
  static constexpr bool is_inline = true;
  explicit Model(Options) {}
  void submit(c10::Device, ReadyTask);
  std::size_t poll();
  void on_submit(unique_function<void()>);
  void stop() noexcept;
  std::span<c10::Stream const> streams() const;
  Event record(c10::Stream);
  void wait(c10::Stream, Event&);
  void keep(c10::DataPtr const&, c10::Stream);
};
HIT(Queue, Model);
HIT(Queue, QueueArchetype);

struct ForLaterContract : Model {
  using Model::Model;
  struct contract : queue_v1 {};
};
HIT(Queue, ForLaterContract);

struct OtherContract : Model {
  using Model::Model;
  struct contract {};
};
NEAR_MISS(Queue, OtherContract, "a type `contract` derived from distgrad::queue_v1");

struct NoDefaultOptions : Model {
  struct Options {
    explicit Options(int);
  };
  explicit NoDefaultOptions(Options) : Model(Model::Options()) {}
};
NEAR_MISS(Queue, NoDefaultOptions, "a type `Options` that has a default constructor");

struct NotMadeOfOptions : Model {
  NotMadeOfOptions() : Model(Options()) {}
};
NEAR_MISS(Queue, NotMadeOfOptions, "a constructor that takes the type's `Options`");

struct ImmovableEvent : Model {
  using Model::Model;
  struct Event {
    Event(Event&&) = delete;
  };
  Event record(c10::Stream);
  void wait(c10::Stream, Event&);
};
NEAR_MISS(Queue, ImmovableEvent, "a movable type `Event`");

struct InlineOnlyAtRunTime : Model {
  using Model::Model;
  bool is_inline;
};
NEAR_MISS(Queue, InlineOnlyAtRunTime, "a constant static constexpr bool is_inline");

struct NoDevice : Model {
  using Model::Model;
  void submit(ReadyTask);
};
NEAR_MISS(Queue, NoDevice, "void submit(c10::Device, ReadyTask)");

struct SubmitAnswers : Model {
  using Model::Model;
  bool submit(c10::Device, ReadyTask);
};
NEAR_MISS(Queue, SubmitAnswers, "void submit(c10::Device, ReadyTask)");

struct PollDoesNotCount : Model {
  using Model::Model;
  void poll();
};
NEAR_MISS(Queue, PollDoesNotCount, "std::size_t poll()");

struct NoWake : Model {
  using Model::Model;
  void on_submit(int);
};
NEAR_MISS(Queue, NoWake, "void on_submit(unique_function<void()>)");

struct StopThrows : Model {
  using Model::Model;
  void stop();
};
NEAR_MISS(Queue, StopThrows, "void stop() noexcept");

struct StreamsOfOneDevice : Model {
  using Model::Model;
  c10::Stream streams() const;
};
NEAR_MISS(Queue, StreamsOfOneDevice, "std::span<c10::Stream const> streams() const");

struct ChangedByAskingForStreams : Model {
  using Model::Model;
  std::span<c10::Stream const> streams();
};
NEAR_MISS(Queue, ChangedByAskingForStreams, "std::span<c10::Stream const> streams() const");

struct RecordReturnsNothing : Model {
  using Model::Model;
  void record(c10::Stream);
};
NEAR_MISS(Queue, RecordReturnsNothing, "Event record(c10::Stream)");

struct WaitsForOtherEvents : Model {
  using Model::Model;
  void wait(c10::Stream, int&);
};
NEAR_MISS(Queue, WaitsForOtherEvents, "void wait(c10::Stream, Event&)");

struct KeepsOtherMemory : Model {
  using Model::Model;
  void keep(void*, c10::Stream);
};
NEAR_MISS(Queue, KeepsOtherMemory, "void keep(c10::DataPtr const&, c10::Stream)");

}  // namespace near_queue
