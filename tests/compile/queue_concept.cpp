// Near misses: one type per requirement of QueuePolicy that lacks just that one.
#include <distgrad/queue/archetype.hpp>
#include <distgrad/queue/concept.hpp>
#include <distgrad/queue/cpu_queues.hpp>
#include <distgrad/queue/device_queues.hpp>
#include <distgrad/queue/inline_queues.hpp>

namespace {

using distgrad::QueuePolicy;
using distgrad::ReadyTask;
using distgrad::unique_function;

// A model from which the near misses are derived; a member of the same name hides what is here.
struct Model {
  using contract = distgrad::queue_v1;
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
static_assert(QueuePolicy<Model>);
static_assert(QueuePolicy<distgrad::QueueArchetype>);
static_assert(QueuePolicy<distgrad::InlineQueues> && QueuePolicy<distgrad::CpuQueues> &&
              QueuePolicy<distgrad::DeviceQueues>);

struct OtherContract : Model {
  using Model::Model;
  struct contract {};
};
struct LaterContract : Model {
  using Model::Model;
  struct contract : distgrad::queue_v1 {};
};
struct NoDefaultOptions : Model {
  struct Options {
    explicit Options(int);
  };
  explicit NoDefaultOptions(Options) : Model(Model::Options()) {}
};
struct NotMadeOfOptions : Model {
  NotMadeOfOptions() : Model(Options()) {}
};
struct ImmovableEvent : Model {
  using Model::Model;
  struct Event {
    Event(Event&&) = delete;
  };
  Event record(c10::Stream);
  void wait(c10::Stream, Event&);
};
struct InlineOnlyAtRunTime : Model {
  using Model::Model;
  bool is_inline;
};
struct NoSubmit : Model {
  using Model::Model;
  void submit(ReadyTask);
};
struct SubmitAnswers : Model {
  using Model::Model;
  bool submit(c10::Device, ReadyTask);
};
struct PollDoesNotCount : Model {
  using Model::Model;
  void poll();
};
struct NoWake : Model {
  using Model::Model;
  void on_submit(int);
};
struct StopThrows : Model {
  using Model::Model;
  void stop();
};
struct StreamsOfOneDevice : Model {
  using Model::Model;
  c10::Stream streams() const;
};
struct ChangedByAskingForStreams : Model {
  using Model::Model;
  std::span<c10::Stream const> streams();
};
struct RecordReturnsNothing : Model {
  using Model::Model;
  void record(c10::Stream);
};
struct WaitsForOtherEvents : Model {
  using Model::Model;
  void wait(c10::Stream, int&);
};
struct KeepsOtherMemory : Model {
  using Model::Model;
  void keep(void*, c10::Stream);
};

static_assert(QueuePolicy<LaterContract>);
static_assert(!QueuePolicy<OtherContract>);
static_assert(!QueuePolicy<NoDefaultOptions>);
static_assert(!QueuePolicy<NotMadeOfOptions>);
static_assert(!QueuePolicy<ImmovableEvent>);
static_assert(!QueuePolicy<InlineOnlyAtRunTime>);
static_assert(!QueuePolicy<NoSubmit>);
static_assert(!QueuePolicy<SubmitAnswers>);
static_assert(!QueuePolicy<PollDoesNotCount>);
static_assert(!QueuePolicy<NoWake>);
static_assert(!QueuePolicy<StopThrows>);
static_assert(!QueuePolicy<StreamsOfOneDevice>);
static_assert(!QueuePolicy<ChangedByAskingForStreams>);
static_assert(!QueuePolicy<RecordReturnsNothing>);
static_assert(!QueuePolicy<WaitsForOtherEvents>);
static_assert(!QueuePolicy<KeepsOtherMemory>);
static_assert(!QueuePolicy<int>);

}  // namespace
