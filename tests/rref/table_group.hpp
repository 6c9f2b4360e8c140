#pragma once
// Three workers' reference tables over a network that delivers when a test says so. No threads.
#include <array>
#include <deque>
#include <memory>
#include <vector>

#include <distgrad/rref/rref.hpp>

#include <doctest/doctest.h>

namespace table_group {

using namespace distgrad;

/// Keeps what its worker sends and wants to run until `Group::settle`.
struct FakeHost final : Host {
  void send(WorkerId to, Message message, SendCompletion done) override {
    sent.emplace_back(to, std::move(message));
    if (done) done({});
  }
  void submit(std::uint64_t, unique_function<void()> task) override {
    tasks.push_back(std::move(task));
  }
  void post(unique_function<void()> continuation) override {
    tasks.push_back(std::move(continuation));
  }
  void wake() noexcept override {}
  void pack(Writer&, std::vector<Buffer>&, std::span<at::Tensor const> tensors) override {
    CHECK(tensors.empty());
  }
  ReceivedTensors unpack(Reader&, std::span<Buffer const>) override { return {}; }
  std::vector<Buffer> landing(std::span<std::uint64_t const>, bool) override { return {}; }
  DeviceRoutes const& routes() const override { return device_routes; }
  void place(std::span<at::Tensor>, std::span<c10::Device const>) override {}
  TimeSource const& clock() const override { return time; }
  Log const& log() const noexcept override { return no_log; }

  TimeSource time;
  Log no_log;
  DeviceRoutes device_routes;
  std::deque<std::pair<WorkerId, Message>> sent;
  std::deque<unique_function<void()>> tasks;
};

struct End {
  End(std::uint32_t rank, std::vector<WorkerInfo> const& group)
      : ids(group[rank].id, group[rank].incarnation),
        agent(host, Membership(group[rank].id, group), std::chrono::seconds(60)),
        table(std::make_shared<RRefTable>(agent, ids)) {
    agent.services().add(*table);
  }
  ~End() {
    agent.caller().close();
    table->close();
    host->tasks.clear();
    host->sent.clear();
  }

  std::shared_ptr<FakeHost> host = std::make_shared<FakeHost>();
  IdSource ids;
  RpcAgent agent;
  std::shared_ptr<RRefTable> table;
};

struct Group {
  Group() {
    std::vector<WorkerInfo> infos;
    for (std::uint32_t i = 0; i < 3; ++i) {
      infos.push_back({"w" + std::to_string(i), WorkerId{i}, Incarnation{5}});
    }
    for (std::uint32_t i = 0; i < 3; ++i) ends[i] = std::make_unique<End>(i, infos);
  }
  End& operator[](std::size_t rank) { return *ends[rank]; }

  /// One message or task. @return false if there is none.
  bool step() {
    for (std::uint32_t i = 0; i < 3; ++i) {
      auto& host = *ends[i]->host;
      if (!host.sent.empty()) {
        auto [to, message] = std::move(host.sent.front());
        host.sent.pop_front();
        ends[to.value]->agent.dispatcher().on_message(WorkerId{i}, std::move(message));
        return true;
      }
      if (!host.tasks.empty()) {
        auto task = std::move(host.tasks.front());
        host.tasks.pop_front();
        task();
        return true;
      }
    }
    return false;
  }
  void settle() {
    for (int steps = 0; step(); ++steps) REQUIRE(steps < 10'000);
  }
  bool holds_nothing() {
    for (auto& end : ends) {
      auto& t = *end->table;
      if (t.owned() + t.forks() + t.pending_users() != 0 || !t.is_quiet()) return false;
    }
    return true;
  }

  std::array<std::unique_ptr<End>, 3> ends;
};

template <class F>
error_code error_of(F&& f) {
  try {
    f();
  } catch (Error const& error) {
    return error.code();
  }
  return {};
}

}  // namespace table_group
