#pragma once
// A worker's agent whose host keeps what is sent and submitted: no transport, no thread.

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <distgrad/rpc/agent.hpp>
#include <distgrad/serialize/serializer.hpp>

namespace recording_host {

using namespace distgrad;

struct Sent {
  WorkerId to;
  Message message;
  SendCompletion done;
};

struct RecordingHost final : Host {
  void send(WorkerId to, Message message, SendCompletion done) override {
    sent.push_back({to, std::move(message), std::move(done)});
  }
  void submit(std::uint64_t, unique_function<void()> task) override {
    tasks.push_back(std::move(task));
  }
  void post(unique_function<void()> continuation) override {
    tasks.push_back(std::move(continuation));
  }
  void wake() noexcept override {}
  void pack(Writer& out, std::vector<Buffer>& buffers,
            std::span<at::Tensor const> tensors) override {
    serializer.pack(out, buffers, tensors);
  }
  ReceivedTensors unpack(Reader& in, std::span<Buffer const> buffers) override {
    return serializer.unpack(in, buffers);
  }
  std::vector<Buffer> landing(std::span<std::uint64_t const> lengths, bool) override {
    return serializer.landing(lengths);
  }
  DeviceRoutes const& routes() const override { return device_routes; }
  void place(std::span<at::Tensor>, std::span<c10::Device const>) override {}
  TimeSource const& clock() const override { return time; }
  Log const& log() const noexcept override { return no_log; }

  void run_tasks() {
    while (!tasks.empty()) {
      auto task = std::move(tasks.front());
      tasks.pop_front();
      task();
    }
  }
  /// What was sent since the last call.
  std::vector<Sent> take_sent() { return std::exchange(sent, {}); }

  TensorSerializer serializer;
  TimeSource time;
  DeviceRoutes device_routes;
  std::vector<Sent> sent;
  std::deque<unique_function<void()>> tasks;
  Log no_log;
};

/// Three workers w0, w1, w2 as one of them knows them.
inline Membership membership(std::uint32_t self) {
  std::vector<WorkerInfo> group;
  for (std::uint32_t i = 0; i < 3; ++i) {
    group.push_back({"w" + std::to_string(i), WorkerId{i}, Incarnation{40 + i}});
  }
  return Membership(WorkerId{self}, group);
}

struct End {
  explicit End(std::uint32_t rank)
      : ids(WorkerId{rank}, Incarnation{40 + rank}),
        agent(host, membership(rank), std::chrono::seconds(60)) {}

  std::shared_ptr<RecordingHost> host = std::make_shared<RecordingHost>();
  IdSource ids;
  RpcAgent agent;

  void receive(std::uint32_t from, Message message) {
    agent.dispatcher().on_message(WorkerId{from}, std::move(message));
  }
};

}  // namespace recording_host
